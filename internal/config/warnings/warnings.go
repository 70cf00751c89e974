// Package warnings finds what is valid in a configuration and probably not meant.
package warnings

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/pkg/team"
)

// Warning is what is valid in a file and probably not meant.
type Warning struct {
	// Path is the path of the key, joined by dots.
	Path string `json:"path"`
	// Message says what will happen, and what to do.
	Message string `json:"message"`
}

// Of returns the warnings about a file.
func Of(c *teamv1.ServerConfig) []Warning {
	var all []Warning
	for _, a := range Adjusted(c) {
		all = append(all, Warning{a.Path, fmt.Sprintf("it is %s, but %s applies: %s", a.Set, a.Effective, a.Because)})
	}
	for _, path := range Unheld(c) {
		all = append(all, Warning{path, UnheldMessage})
	}
	for _, path := range unstaffed(c) {
		all = append(all, Warning{path, "no member is enabled, so the team rejects all requests; enable a member"})
	}
	return slices.Concat(all, ofTeams(c), ofSteps(c), ofNames(c), ofBraces(c))
}

// ofTeams returns warnings about how the teams of the file choose, ordered by team id.
func ofTeams(c *teamv1.ServerConfig) []Warning {
	var all []Warning
	for _, id := range slices.Sorted(maps.Keys(c.GetTeams())) {
		t := c.GetTeams()[id]
		if s := t.GetSupervisor(); s != nil && s.GetRouter() == nil && !slices.ContainsFunc(s.GetRules(), finishes) {
			all = append(all, Warning{"teams." + id + ".supervisor.rules", "no rule has finish, so each run fails when no rule is true or a limit is reached; add {id: done, when: CONDITION, finish: MEMBER}, or a router"})
		}
		if t.GetCoordinator() == nil && t.GetRoute() == nil {
			continue
		}
		for i, m := range modes.Members(t) {
			if !m.Disabled && m.Description == "" && m.Role == "" && lacksDescription(c, m.Agent) {
				all = append(all, Warning{fmt.Sprintf("teams.%s.members[%d]", id, i), fmt.Sprintf("%q has no description, by which the model chooses among members; add description", modes.MemberID(t.GetMembers()[i]))})
			}
		}
	}
	return all
}

func finishes(r *teamv1.RuleConfig) bool { return r.GetFinish() != "" }

// lacksDescription reports whether an agent or team of the file has neither a description nor skills. Remote agents,
// and those of programs, describe themselves.
func lacksDescription(c *teamv1.ServerConfig, id string) bool {
	if a := c.GetAgents()[id]; a != nil {
		return a.GetDescription() == "" && len(a.GetSkills()) == 0 && a.GetA2A() == nil && a.GetGrpc() == nil && a.GetProgram() == nil
	}
	t := c.GetTeams()[id]
	return t != nil && t.GetDescription() == ""
}

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
func Adjusted(c *teamv1.ServerConfig) []Adjustment {
	var all []Adjustment
	for _, id := range slices.Sorted(maps.Keys(c.GetTeams())) {
		all = append(all, AdjustedOf(c, id)...)
	}
	return all
}

// AdjustedOf is like Adjusted for a single team.
func AdjustedOf(c *teamv1.ServerConfig, id string) []Adjustment {
	return adjusted("teams."+id, c.GetTeams()[id])
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

// UnheldMessage is the warning about a path that Unheld returns.
const UnheldMessage = "no API key and no client certificate of the file has any of these roles, so no caller can answer the question; give one of these roles to a key or certificate client"

// Unheld returns the paths of the roles that no API key and no certificate client of the file has, so that
// no caller can answer a question for them. Questions come from human steps, from limits whose on_limit is
// ASK, from approvals, and from tools. Unheld returns nil if the file has neither API keys nor certificate
// clients, because roles are not checked then, and if an issuer of tokens has a claim for roles, because
// its tokens can have any roles.
func Unheld(c *teamv1.ServerConfig) []string {
	var all []string
	unheld := rolesUnheld(c)
	for _, name := range slices.Sorted(maps.Keys(c.GetTools())) {
		if unheld(c.GetTools()[name].GetApprove().GetRoles()) {
			all = append(all, "tools."+name+".approve.roles")
		}
		if unheld(c.GetTools()[name].GetMcp().GetElicit().GetRoles()) {
			all = append(all, "tools."+name+".mcp.elicit.roles")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.GetAgents())) {
		if unheld(c.GetAgents()[id].GetLimits().GetAskRoles()) {
			all = append(all, "agents."+id+".limits.ask_roles")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.GetTeams())) {
		all = append(all, UnheldOf(c, id)...)
	}
	return all
}

// rolesUnheld returns a function that reports whether a list of roles is not empty and no API key and no
// certificate client has any of them. The function always reports false where Unheld returns nil.
func rolesUnheld(c *teamv1.ServerConfig) func(roles []string) bool {
	var held []string
	auth := c.GetServer().GetAuth()
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
func UnheldOf(c *teamv1.ServerConfig, id string) []string {
	var all []string
	unheld := rolesUnheld(c)
	if unheld(c.GetTeams()[id].GetLimits().GetAskRoles()) {
		all = append(all, "teams."+id+".limits.ask_roles")
	}
	for i, m := range c.GetTeams()[id].GetMembers() {
		if unheld(m.GetApprove().GetRoles()) {
			all = append(all, fmt.Sprintf("teams.%s.members[%d].approve.roles", id, i))
		}
	}
	if unheld(c.GetTeams()[id].GetWorkflow().GetPlan().GetApprove().GetRoles()) {
		all = append(all, "teams."+id+".workflow.plan.approve.roles")
	}
	modes.Walk(c.GetTeams()[id].GetWorkflow().GetSteps(), nil, func(s *teamv1.WorkflowStep, at []any) {
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

// unstaffed returns the path of the key members of each team that rejects all requests because no
// member is enabled. Teams with a leader, and workflows whose steps only ask people, need no members.
func unstaffed(c *teamv1.ServerConfig) []string {
	var all []string
	for _, id := range slices.Sorted(maps.Keys(c.GetTeams())) {
		t := c.GetTeams()[id]
		if needsMembers(t) && !slices.ContainsFunc(modes.Members(t), func(m team.Member) bool { return !m.Disabled }) {
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
	modes.Walk(t.GetWorkflow().GetSteps(), nil, func(s *teamv1.WorkflowStep, _ []any) { needs = needs || s.GetAgent() != "" })
	return needs
}
