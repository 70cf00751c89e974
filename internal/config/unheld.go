package config

import (
	"fmt"
	"slices"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// UnheldWarning is the warning about a path that Unheld returns.
const UnheldWarning = "no API key and no client certificate of the file has any of these roles, so no caller can answer the question; give one of these roles to a key or certificate client"

// Unheld returns the paths of the roles that no API key and no certificate client of the file has, so that
// no caller can answer a question for them. Questions come from human steps, from limits whose on_limit is
// ASK, from approvals, and from tools. Unheld returns nil if the file has neither API keys nor certificate
// clients, because roles are not checked then, and if an issuer of tokens has a claim for roles, because
// its tokens can have any roles.
func (c *Config) Unheld() []string {
	var all []string
	unheld := c.unheld()
	for _, name := range sorted(c.Server.GetTools()) {
		if unheld(c.Server.GetTools()[name].GetApprove().GetRoles()) {
			all = append(all, "tools."+name+".approve.roles")
		}
		if unheld(c.Server.GetTools()[name].GetMcp().GetElicit().GetRoles()) {
			all = append(all, "tools."+name+".mcp.elicit.roles")
		}
	}
	for _, id := range sorted(c.Server.GetAgents()) {
		if unheld(c.Server.GetAgents()[id].GetLimits().GetAskRoles()) {
			all = append(all, "agents."+id+".limits.ask_roles")
		}
	}
	for _, id := range sorted(c.Server.GetTeams()) {
		all = append(all, c.UnheldOf(id)...)
	}
	return all
}

// unheld returns a function that reports whether a list of roles is not empty and no API key and no
// certificate client has any of them. The function always reports false where Unheld returns nil.
func (c *Config) unheld() func(roles []string) bool {
	var held []string
	auth := c.Server.GetServer().GetAuth()
	for _, k := range auth.GetApiKeys() {
		held = append(held, k.GetRoles()...)
	}
	for _, k := range auth.GetMtls() {
		held = append(held, k.GetRoles()...)
	}
	known := len(auth.GetApiKeys())+len(auth.GetMtls()) > 0 &&
		!slices.ContainsFunc(auth.GetJwt(), func(i *teamv1.JwtIssuer) bool { return i.GetClaims().GetRoles() != "" })
	return func(roles []string) bool {
		return known && len(roles) > 0 && !slices.ContainsFunc(roles, func(r string) bool { return slices.Contains(held, r) })
	}
}

// UnheldOf is like Unheld for a single team.
func (c *Config) UnheldOf(id string) []string {
	var all []string
	unheld := c.unheld()
	if unheld(c.Server.GetTeams()[id].GetLimits().GetAskRoles()) {
		all = append(all, "teams."+id+".limits.ask_roles")
	}
	for i, m := range c.Server.GetTeams()[id].GetMembers() {
		if unheld(m.GetApprove().GetRoles()) {
			all = append(all, fmt.Sprintf("teams.%s.members[%d].approve.roles", id, i))
		}
	}
	if unheld(c.Server.GetTeams()[id].GetWorkflow().GetPlan().GetApprove().GetRoles()) {
		all = append(all, "teams."+id+".workflow.plan.approve.roles")
	}
	walk(c.Server.GetTeams()[id].GetWorkflow().GetSteps(), nil, func(s *teamv1.WorkflowStep, at []any) {
		if unheld(s.GetHuman().GetRoles()) {
			all = append(all, "teams."+id+".workflow.steps"+keyPath(at)+".human.roles")
		}
	})
	return all
}

// keyPath formats a path for users, such as .steps[2].human.
func keyPath(path []any) string {
	var b strings.Builder
	for _, step := range path {
		if i, ok := step.(int); ok {
			fmt.Fprintf(&b, "[%d]", i)
		} else {
			fmt.Fprintf(&b, ".%v", step)
		}
	}
	return b.String()
}
