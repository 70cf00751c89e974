package config

import (
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/team"
)

// Adjustment describes a limit whose effective value differs from the configured one, because
// another limit is smaller.
type Adjustment struct {
	// Path is the path of the key, joined by dots.
	Path string `json:"path"`
	// Set is the configured value, Effective the one that applies.
	Set       string `json:"set"`
	Effective string `json:"effective"`
	// Because is the path of the smaller limit, or says that the limit is a default.
	Because string `json:"because"`
}

// Adjusted returns the limits that a smaller limit overrides, ordered by team id.
func (c *Config) Adjusted() []Adjustment {
	var all []Adjustment
	for _, id := range sorted(c.Server.GetTeams()) {
		all = append(all, c.AdjustedOf(id)...)
	}
	return all
}

// AdjustedOf is like Adjusted for a single team.
func (c *Config) AdjustedOf(id string) []Adjustment {
	return adjusted("teams."+id, c.Server.GetTeams()[id])
}

// adjusted returns the member timeouts that are longer than the timeout of their team.
func adjusted(path string, t *teamv1.TeamConfig) []Adjustment {
	most, because := team.DefaultTimeout, "the default of "+path+".limits.timeout"
	if d := t.GetLimits().GetTimeout(); d.AsDuration() > 0 {
		most, because = d.AsDuration(), path+".limits.timeout"
	}
	var all []Adjustment
	look := func(at string, d *durationpb.Duration) {
		if d.AsDuration() > most {
			all = append(all, Adjustment{path + at, d.AsDuration().String(), most.String(), because})
		}
	}
	look(".limits.member_timeout", t.GetLimits().GetMemberTimeout())
	for i, m := range t.GetMembers() {
		look(fmt.Sprintf(".members[%d].member_timeout", i), m.GetMemberTimeout())
	}
	return all
}
