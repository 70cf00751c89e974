package cli

import (
	"cmp"
	"encoding/json"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/pkg/team"
)

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
