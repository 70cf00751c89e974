// Package teams implements the commands over the teams, agents and collaborations of a running server.
package teams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/config/warnings"
	"github.com/agentteams/team-server/pkg/agent"
)

// Commands are the commands over teams and agents. They print to the console and call the server of the connection.
type Commands struct {
	Console    *console.Console
	Connection *console.Connection
}

// teamFile is a file with teams to apply.
type teamFile struct {
	path  string
	text  *source.Text
	parts []config.Addition // a document for each team
}

// readTeamFile reads a file and splits it into one document per team.
func readTeamFile(path string) (*teamFile, error) {
	if path == "" {
		return nil, console.Usagef("name the file with the teams: -f FILE")
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
func (c *Commands) ApplyTeams(ctx context.Context, path string, dry bool) error {
	server, err := c.Connection.Manager("teams apply")
	if err != nil {
		return err
	}
	defer server.Close()
	f, err := readTeamFile(path)
	if err != nil {
		return err
	}
	for _, part := range f.parts {
		t, done, err := apply(ctx, server, part, dry)
		if err != nil {
			return f.faults(err)
		}
		if dry && done != "unchanged" {
			done = "would be " + done
		}
		if c.Console.JSON {
			err = c.Console.Print(t)
		} else {
			_, err = fmt.Fprintf(c.Console.Out, "team %s  %s\n", part.Name, done)
		}
		if err != nil {
			return err
		}
		for _, path := range t.GetUnheld() {
			c.Console.Sayf("%s: %s", path, warnings.UnheldMessage)
		}
	}
	return nil
}

// apply creates or updates a team and returns what it did.
func apply(ctx context.Context, server *client.Team, part config.Addition, dry bool) (t *teamv1.Team, done string, err error) {
	now, err := server.GetTeam(ctx, part.Name)
	var e *agent.Error
	switch {
	case errors.As(err, &e) && e.Reason == agent.ReasonTeamNotFound:
		t, err = server.CreateTeam(ctx, &teamv1.CreateTeamRequest{Form: &teamv1.CreateTeamRequest_Yaml{Yaml: string(part.Data)}, ValidateOnly: dry})
		return t, "created", err
	case err != nil:
		return nil, "", err
	case now.GetYaml() == string(part.Data):
		return now, "unchanged", nil
	}
	t, err = server.UpdateTeam(ctx, &teamv1.UpdateTeamRequest{
		TeamId: part.Name, Etag: now.GetEtag(), Form: &teamv1.UpdateTeamRequest_Yaml{Yaml: string(part.Data)}, ValidateOnly: dry,
	})
	return t, "updated", err
}

// DiffTeams prints what ApplyTeams would change. It returns console.ErrFailed if there are changes.
func (c *Commands) DiffTeams(ctx context.Context, path string) error {
	server, err := c.Connection.Manager("teams diff")
	if err != nil {
		return err
	}
	defer server.Close()
	f, err := readTeamFile(path)
	if err != nil {
		return err
	}
	same := true
	for _, part := range f.parts {
		now, err := server.GetTeam(ctx, part.Name)
		var e *agent.Error
		if err != nil && (!errors.As(err, &e) || e.Reason != agent.ReasonTeamNotFound) {
			return err
		}
		text := diff.Diff("server/"+part.Name, []byte(now.GetYaml()), f.path, part.Data)
		same = same && len(text) == 0
		if _, err := c.Console.Out.Write(text); err != nil {
			return err
		}
	}
	if !same {
		return console.ErrFailed
	}
	return nil
}

// GetTeam prints the YAML of a team as it was applied.
func (c *Commands) GetTeam(ctx context.Context, id string) error {
	t, err := console.Ask(c.Connection, "teams get", func(server *client.Team) (*teamv1.Team, error) { return server.GetTeam(ctx, id) })
	switch {
	case err != nil:
		return err
	case c.Console.JSON:
		return c.Console.Print(t)
	case t.GetYaml() == "":
		return fmt.Errorf("team %q is defined in the server's configuration file; use -o json to see its other properties", id)
	}
	_, err = fmt.Fprintln(c.Console.Out, strings.TrimRight(t.GetYaml(), "\n"))
	return err
}

// ListTeams prints the teams of the server.
func (c *Commands) ListTeams(ctx context.Context) error {
	teams, err := console.Ask(c.Connection, "teams ls", func(server *client.Team) ([]*teamv1.Team, error) { return server.ListTeams(ctx) })
	if err != nil {
		return err
	}
	return console.Table(c.Console, teams, "ID\tMODE\tSTATE\tORIGIN\tNAME", func(t *teamv1.Team) []string {
		return []string{t.GetId(), cmp.Or(t.GetMode(), "-"), console.Enum(t.GetState(), "TEAM_STATE_"), console.Enum(t.GetOrigin(), "ORIGIN_"), t.GetName()}
	})
}

// DeleteTeam deletes a team.
func (c *Commands) DeleteTeam(ctx context.Context, id string) error {
	if err := c.Connection.With("teams delete", func(server *client.Team) error { return server.DeleteTeam(ctx, id) }); err != nil {
		return err
	}
	c.Console.Sayf("team %s  deleted", id)
	return nil
}
