package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/config/warnings"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

// teamFile is a file with teams to apply.
type teamFile struct {
	path  string
	text  *source.Text
	parts []config.Addition // a document for each team
}

// readTeamFile reads a file and splits it into one document per team.
func readTeamFile(path string) (*teamFile, error) {
	if path == "" {
		return nil, UsageError{Err: errors.New("name the file with the teams: -f FILE")}
	}
	path, err := config.Loader{}.Find(path)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path) //nolint:gosec // the user names the file
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	parts, err := config.Addition{Name: path, Data: data}.Split()
	return &teamFile{path: path, text: config.Addition{Name: path, Data: data}.Text(), parts: parts}, err
}

var textPlace = regexp.MustCompile(`^yaml:(\d+):(\d+)$`)

// faults converts an error of the server that concerns the file to source.Faults. Other errors are
// returned unchanged.
func (f *teamFile) faults(err error) error {
	var e *agent.Error
	if !errors.As(err, &e) || e.Reason != agent.ReasonInvalidTeamConfig || len(e.Violations) == 0 {
		return err
	}
	var faults source.Faults
	for _, v := range e.Violations {
		message, hint, _ := strings.Cut(v.Description, "; ")
		fault := source.Fault{File: f.path, Message: message, Hint: hint}
		if m := textPlace.FindStringSubmatch(v.Field); m != nil && len(f.parts) == 1 { // the lines of a split document differ from those of the file
			fault.Line, _ = strconv.Atoi(m[1])
			fault.Col, _ = strconv.Atoi(m[2])
		}
		faults = append(faults, f.text.Show(fault))
	}
	return faults
}

// ApplyTeams creates or updates each team of a file on the server. If dry is true, the server only
// validates the changes.
func (s *Shell) ApplyTeams(ctx context.Context, path string, dry bool) error {
	c, err := s.Manager("teams apply")
	if err != nil {
		return err
	}
	defer c.Close()
	f, err := readTeamFile(path)
	if err != nil {
		return err
	}
	for _, part := range f.parts {
		t, done, err := apply(ctx, c, part, dry)
		if err != nil {
			return f.faults(err)
		}
		if dry && done != "unchanged" {
			done = "would be " + done
		}
		if s.JSON {
			err = s.Print(t)
		} else {
			_, err = fmt.Fprintf(s.Out, "team %s  %s\n", part.Name, done)
		}
		if err != nil {
			return err
		}
		for _, path := range t.GetUnheld() {
			s.Sayf("%s: %s", path, warnings.UnheldMessage)
		}
	}
	return nil
}

// apply creates or updates a team and returns what it did.
func apply(ctx context.Context, c *client.Team, part config.Addition, dry bool) (t *teamv1.Team, done string, err error) {
	now, err := c.GetTeam(ctx, part.Name)
	var e *agent.Error
	switch {
	case errors.As(err, &e) && e.Reason == agent.ReasonTeamNotFound:
		t, err = c.CreateTeam(ctx, &teamv1.CreateTeamRequest{Form: &teamv1.CreateTeamRequest_Yaml{Yaml: string(part.Data)}, ValidateOnly: dry})
		return t, "created", err
	case err != nil:
		return nil, "", err
	case now.GetYaml() == string(part.Data):
		return now, "unchanged", nil
	}
	t, err = c.UpdateTeam(ctx, &teamv1.UpdateTeamRequest{
		TeamId: part.Name, Etag: now.GetEtag(), Form: &teamv1.UpdateTeamRequest_Yaml{Yaml: string(part.Data)}, ValidateOnly: dry,
	})
	return t, "updated", err
}

// DiffTeams prints what ApplyTeams would change. It returns ErrFailed if there are changes.
func (s *Shell) DiffTeams(ctx context.Context, path string) error {
	c, err := s.Manager("teams diff")
	if err != nil {
		return err
	}
	defer c.Close()
	f, err := readTeamFile(path)
	if err != nil {
		return err
	}
	same := true
	for _, part := range f.parts {
		now, err := c.GetTeam(ctx, part.Name)
		var e *agent.Error
		if err != nil && (!errors.As(err, &e) || e.Reason != agent.ReasonTeamNotFound) {
			return err
		}
		text := diff.Diff("server/"+part.Name, []byte(now.GetYaml()), f.path, part.Data)
		same = same && len(text) == 0
		if _, err := s.Out.Write(text); err != nil {
			return err
		}
	}
	if !same {
		return ErrFailed
	}
	return nil
}

// GetTeam prints the YAML of a team as it was applied.
func (s *Shell) GetTeam(ctx context.Context, id string) error {
	c, err := s.Manager("teams get")
	if err != nil {
		return err
	}
	defer c.Close()
	t, err := c.GetTeam(ctx, id)
	switch {
	case err != nil:
		return err
	case s.JSON:
		return s.Print(t)
	case t.GetYaml() == "":
		return fmt.Errorf("team %q is defined in the server's configuration file; use -o json to see its other properties", id)
	}
	_, err = fmt.Fprintln(s.Out, strings.TrimRight(t.GetYaml(), "\n"))
	return err
}

// ListTeams prints the teams of the server.
func (s *Shell) ListTeams(ctx context.Context) error {
	c, err := s.Manager("teams ls")
	if err != nil {
		return err
	}
	defer c.Close()
	teams, err := c.ListTeams(ctx)
	if err != nil {
		return err
	}
	return console.Table(&s.Console, teams, "ID\tMODE\tSTATE\tORIGIN\tNAME", func(t *teamv1.Team) []string {
		return []string{t.GetId(), cmp.Or(t.GetMode(), "-"), lower(t.GetState(), "TEAM_STATE_"), lower(t.GetOrigin(), "ORIGIN_"), t.GetName()}
	})
}

// DeleteTeam deletes a team.
func (s *Shell) DeleteTeam(ctx context.Context, id string) error {
	c, err := s.Manager("teams delete")
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.DeleteTeam(ctx, id); err != nil {
		return err
	}
	s.Sayf("team %s  deleted", id)
	return nil
}

// ListAgents prints the agents and teams of the server. skill and kind select agents; "" matches
// all.
func (s *Shell) ListAgents(ctx context.Context, skill, kind string) error {
	c, err := s.Manager("agents ls")
	if err != nil {
		return err
	}
	defer c.Close()
	agents, err := c.ListAgents(ctx, skill, kind)
	if err != nil {
		return err
	}
	return console.Table(&s.Console, agents, "ID\tKIND\tORIGIN\tSKILLS\tNAME", func(a *teamv1.RegisteredAgent) []string {
		return []string{a.GetId(), a.GetKind(), lower(a.GetOrigin(), "ORIGIN_"), cmp.Or(strings.Join(a.GetInfo().GetCapabilities(), ","), "-"), a.GetInfo().GetName()}
	})
}

// GetAgent prints an agent or a team: what it says about itself, and its health, which the server checks first.
func GetAgent(ctx context.Context, s *Shell, id string) error {
	c, err := s.Manager("agents get")
	if err != nil {
		return err
	}
	defer c.Close()
	a, err := c.GetAgent(ctx, id)
	if err != nil || s.JSON {
		return s.printed(err, a)
	}
	health := "healthy"
	if !a.GetHealth().GetHealthy() {
		health = strings.TrimSuffix("not healthy: "+a.GetHealth().GetDetail(), ": ")
	}
	rows := [][]string{
		{"id", a.GetId()}, {"kind", a.GetKind()}, {"origin", lower(a.GetOrigin(), "ORIGIN_")}, {"name", a.GetInfo().GetName()}, {"does", a.GetInfo().GetDescription()},
		{"health", health}, {"accepts", strings.Join(a.GetInfo().GetInputModes(), ", ")}, {"answers", strings.Join(a.GetInfo().GetOutputModes(), ", ")},
	}
	for _, key := range slices.Sorted(maps.Keys(a.GetInfo().GetMetadata())) {
		rows = append(rows, []string{key, a.GetInfo().GetMetadata()[key]})
	}
	for _, skill := range a.GetInfo().GetSkills() {
		rows = append(rows, []string{"skill", skill.GetId() + ": " + skill.GetDescription()})
	}
	if a.GetChangedBy() != "" {
		rows = append(rows, []string{"changed", a.GetChanged().AsTime().Format(time.RFC3339) + " by " + a.GetChangedBy()})
	}
	for _, row := range rows {
		if row[1] != "" {
			fmt.Fprintf(s.Text(), "%-12s %s\n", console.Line(row[0]), console.Below(row[1]))
		}
	}
	return nil
}

// checks is the number of agents that CheckAgents checks concurrently.
const checks = 8

// CheckAgents makes the server check the health of each agent and prints the results. For a remote
// agent the server fetches its card. It returns ErrFailed if an agent is unhealthy.
func (s *Shell) CheckAgents(ctx context.Context) error {
	c, err := s.Manager("agents check")
	if err != nil {
		return err
	}
	defer c.Close()
	agents, err := c.ListAgents(ctx, "", "")
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, checks)
	errs := make([]error, len(agents))
	for i := range agents {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			var a *teamv1.RegisteredAgent
			if a, errs[i] = c.GetAgent(ctx, agents[i].GetId()); errs[i] == nil {
				agents[i] = a
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	well := true
	err = console.Table(&s.Console, agents, "ID\tKIND\tHEALTH\tDETAIL", func(a *teamv1.RegisteredAgent) []string {
		h := a.GetHealth()
		if h.GetHealthy() {
			return []string{a.GetId(), a.GetKind(), "ok", h.GetDetail()}
		}
		well = false
		return []string{a.GetId(), a.GetKind(), "down", h.GetDetail()}
	})
	if err == nil && !well {
		return ErrFailed
	}
	return err
}

// lower returns an enum value in lower case without its prefix.
func lower(v fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(v.String(), prefix))
}

// roster is a team with its members, for JSON output.
type roster struct {
	File    string `json:"file"`
	ID      string `json:"id"`
	Name    string `json:"name,omitempty"`
	Mode    string `json:"mode"`
	Members []seat `json:"members"`
}

// seat is a member of a roster.
type seat struct {
	ID          string          `json:"id"`
	Agent       string          `json:"agent"`
	Type        string          `json:"type"` // team, model, scripted, grpc, a2a or program
	Label       string          `json:"label"`
	Description string          `json:"description,omitempty"`
	Priority    int32           `json:"priority"`
	Enabled     bool            `json:"enabled"`
	Parameters  json.RawMessage `json:"parameters,omitempty"` // the other keys of the member in the file
}

// rosters returns the teams of a configuration, sorted by id, with their members sorted by
// descending priority.
func rosters(def *config.Config) ([]roster, error) {
	var all []roster
	for id, t := range def.Server.GetTeams() {
		r := roster{File: def.File, ID: id, Name: t.GetName(), Mode: modes.Name(t), Members: []seat{}}
		for i, m := range modes.Members(t) { // steps of a workflow may name members that are not listed
			listed := &teamv1.MemberConfig{}
			if i < len(t.GetMembers()) {
				listed = t.GetMembers()[i]
			}
			s, err := newSeat(def, m, listed)
			if err != nil {
				return nil, err
			}
			r.Members = append(r.Members, s)
		}
		slices.SortStableFunc(r.Members, func(a, b seat) int { return cmp.Compare(b.Priority, a.Priority) })
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b roster) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

func newSeat(def *config.Config, m team.Member, listed *teamv1.MemberConfig) (seat, error) {
	a := def.Server.GetAgents()[m.Agent]
	t := def.Server.GetTeams()[m.Agent]
	s := seat{
		ID: cmp.Or(m.ID, m.Agent), Agent: m.Agent, Type: config.Kind(a), Priority: m.Priority, Enabled: !m.Disabled,
		Label: cmp.Or(a.GetName(), t.GetName(), m.ID, m.Agent), Description: cmp.Or(m.Description, a.GetDescription(), t.GetDescription()),
	}
	rest := proto.CloneOf(listed)
	rest.Agent, rest.Id, rest.Description, rest.Priority, rest.Enabled = "", "", "", 0, nil
	if proto.Size(rest) == 0 {
		return s, nil
	}
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(rest)
	s.Parameters = b
	return s, err
}
