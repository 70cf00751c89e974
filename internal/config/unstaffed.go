package config

import (
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/team"
)

// Unstaffed returns the path of the key members of each team that rejects all requests because no
// member is enabled. Teams with a leader, and workflows whose steps only ask people, need no members.
func (c *Config) Unstaffed() []string {
	var all []string
	for _, id := range sorted(c.Server.GetTeams()) {
		t := c.Server.GetTeams()[id]
		if needsMembers(t) && !slices.ContainsFunc(Members(t), func(m team.Member) bool { return !m.Disabled }) {
			all = append(all, "teams."+id+".members")
		}
	}
	return all
}

// needsMembers reports whether a team cannot work without an enabled member.
func needsMembers(t *teamv1.TeamConfig) bool {
	if w := t.GetWorkflow(); w == nil || w.GetPlan() != nil {
		return t.GetCoordinator() == nil && t.GetRoute() == nil
	}
	var needs bool
	walk(t.GetWorkflow().GetSteps(), nil, func(s *teamv1.WorkflowStep, _ []any) { needs = needs || s.GetAgent() != "" })
	return needs
}
