package config

import (
	"fmt"
	"slices"
)

// Unheld are the steps that ask roles of which no key has one, where there are keys, by
// their paths: nobody can answer them, unless a key is added.
func (c *Config) Unheld() []string {
	var all []string
	for _, id := range sorted(c.Server.GetTeams()) {
		all = append(all, c.UnheldOf(id)...)
	}
	return all
}

// UnheldOf are those of a team.
func (c *Config) UnheldOf(id string) []string {
	var held []string
	keys := c.Server.GetServer().GetAuth().GetApiKeys()
	for _, k := range keys {
		held = append(held, k.GetRoles()...)
	}
	var all []string
	for i, s := range c.Server.GetTeams()[id].GetWorkflow().GetSteps() {
		roles := s.GetHuman().GetRoles()
		if len(keys) > 0 && len(roles) > 0 && !slices.ContainsFunc(roles, func(r string) bool { return slices.Contains(held, r) }) {
			all = append(all, fmt.Sprintf("teams.%s.workflow.steps[%d].human.roles", id, i))
		}
	}
	return all
}
