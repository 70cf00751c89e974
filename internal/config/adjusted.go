package config

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Adjustment is a limit that holds in another way than the file says, because of
// a second one.
type Adjustment struct {
	// Path of the key, its parts joined by dots.
	Path string `json:"path"`
	// Set is what the file says, Effective what holds.
	Set       string `json:"set"`
	Effective string `json:"effective"`
	// Because is the path of the limit that is smaller, or says that it is a default.
	Because string `json:"because"`
}

// defaultTimeout of a team that sets none.
const defaultTimeout = 300 * time.Second

// Adjusted returns the limits of the file that others make smaller, in the order
// of the teams' ids.
func (c *Config) Adjusted() []Adjustment {
	var all []Adjustment
	for _, id := range sorted(c.Server.GetTeams()) {
		all = append(all, c.AdjustedOf(id)...)
	}
	return all
}

// AdjustedOf is Adjusted of one team.
func (c *Config) AdjustedOf(id string) []Adjustment {
	return adjusted("teams."+id, c.Server.GetTeams()[id])
}

// adjusted are the times of members that are longer than their team's.
func adjusted(path string, t *teamv1.TeamConfig) []Adjustment {
	most, because := defaultTimeout, "the default of "+path+".limits.timeout"
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
