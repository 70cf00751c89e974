package config

import (
	"fmt"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Doubt is what is valid in a file and probably not meant.
type Doubt struct {
	// Path is the path of the key, joined by dots.
	Path string `json:"path"`
	// Message says what will happen, and what to do.
	Message string `json:"message"`
}

// Doubts returns the doubts about the teams of the file, ordered by team id.
func (c *Config) Doubts() []Doubt {
	var all []Doubt
	for _, id := range sorted(c.Server.GetTeams()) {
		t := c.Server.GetTeams()[id]
		if s := t.GetSupervisor(); s != nil && s.GetRouter() == nil && !slices.ContainsFunc(s.GetRules(), finishes) {
			all = append(all, Doubt{"teams." + id + ".supervisor.rules", "no rule has finish, so each run fails when no rule is true or a limit is reached; add {id: done, when: CONDITION, finish: MEMBER}, or a router"})
		}
		if t.GetCoordinator() == nil && t.GetRoute() == nil {
			continue
		}
		for i, m := range Members(t) {
			if !m.Disabled && m.Description == "" && m.Role == "" && c.lacksDescription(m.Agent) {
				all = append(all, Doubt{fmt.Sprintf("teams.%s.members[%d]", id, i), fmt.Sprintf("%q has no description, by which the model chooses among members; add description", memberID(t.GetMembers()[i]))})
			}
		}
	}
	return all
}

func finishes(r *teamv1.RuleConfig) bool { return r.GetFinish() != "" }

// lacksDescription reports whether an agent or team of the file has neither a description nor skills. Remote agents
// describe themselves.
func (c *Config) lacksDescription(id string) bool {
	if a := c.Server.GetAgents()[id]; a != nil {
		return a.GetDescription() == "" && len(a.GetSkills()) == 0 && a.GetA2A() == nil && a.GetGrpc() == nil
	}
	t := c.Server.GetTeams()[id]
	return t != nil && t.GetDescription() == ""
}
