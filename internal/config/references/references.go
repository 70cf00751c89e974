// Package references finds what the agents and teams of a configuration refer to by name: models, tools, other agents and
// teams, and schema files.
package references

import (
	"fmt"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/askuser"
	"github.com/agentteams/team-server/internal/config/modes"
)

// Kind is the kind of what a reference names.
type Kind string

// The kinds.
const (
	Model  Kind = "model"
	Tool   Kind = "tool"
	Agent  Kind = "agent" // or a team
	Schema Kind = "schema"
)

// Reference is a name in an agent or team that another part of the file defines, or that is the name of a file.
type Reference struct {
	Kind Kind
	Name string
	// By says who uses it, of an agent or a team with a verb, such as: team "desk" has member.
	By string
	// Path is the path of the name in the file.
	Path []any
}

// list collects the references of one agent or team.
type list struct {
	base []any
	all  []Reference
}

// add adds a name, unless it is "".
func (u *list) add(k Kind, name, by string, path ...any) {
	if name != "" {
		u.all = append(u.all, Reference{k, name, by, slices.Concat(u.base, path)})
	}
}

// Of returns the references of an agent or team. They are all that connects the parts of a file: what is checked,
// served, stored with a definition and counted follows from them.
func Of(c *teamv1.ServerConfig, id string) []Reference {
	if a := c.GetAgents()[id]; a != nil {
		return ofAgent(id, a)
	}
	if t := c.GetTeams()[id]; t != nil {
		return ofTeam(id, t)
	}
	return nil
}

func ofAgent(id string, a *teamv1.AgentConfig) []Reference {
	u, by := &list{base: []any{"agents", id}}, fmt.Sprintf("agent %q", id)
	u.add(Model, a.GetModel(), by, "model")
	u.tools(a.GetTools(), by, "tools")
	for i, s := range a.GetScripted().GetSteps() {
		u.add(Agent, s.GetCall(), by+" calls", "scripted", "steps", i, "call")
	}
	for n, c := range a.GetScripted().GetCalls() {
		for i, s := range c.GetSteps() {
			u.add(Agent, s.GetCall(), by+" calls", "scripted", "calls", n, "steps", i, "call")
		}
	}
	u.add(Schema, a.GetOutputSchema(), by, "output_schema")
	u.guardrails(a.GetGuardrails(), by)
	return u.all
}

func ofTeam(id string, t *teamv1.TeamConfig) []Reference {
	u, by := &list{base: []any{"teams", id}}, fmt.Sprintf("team %q", id)
	u.add(Model, t.GetSupervisor().GetRouter().GetModel(), "the router of "+by, "supervisor", "router", "model")
	leader := "the leader of " + by
	u.add(Model, t.GetRoute().GetModel(), leader, "route", "model")
	u.add(Model, t.GetWorkflow().GetPlan().GetModel(), leader, "workflow", "plan", "model")
	u.add(Model, t.GetBroadcast().GetModel(), "the broadcast of "+by, "broadcast", "model")
	u.add(Model, t.GetProgram().GetModel(), "the scheduler of "+by, "program", "model")
	u.leader(t.GetCoordinator().GetLeader(), by)
	members := map[string]bool{}
	for i, m := range t.GetMembers() {
		members[modes.MemberID(m)] = true
		u.add(Agent, m.GetAgent(), by+" has member", "members", i, "agent")
	}
	modes.Walk(t.GetWorkflow().GetSteps(), []any{"workflow", "steps"}, func(s *teamv1.WorkflowStep, at []any) {
		if !members[s.GetAgent()] {
			u.add(Agent, s.GetAgent(), fmt.Sprintf("step %q uses agent", s.GetId()), append(at, "agent")...)
		}
	})
	for _, r := range modes.Reviews(t) {
		at, judge := append(slices.Clip(r.Path), "judge"), "the judge of "+by
		u.add(Model, r.GetJudge().GetModel(), judge, append(at, "model")...)
		u.add(Agent, r.GetJudge().GetAgent(), judge+" is", append(slices.Clone(at), "agent")...)
		u.add(Schema, r.GetJudge().GetSchema(), judge, append(slices.Clone(at), "schema")...)
	}
	u.guardrails(t.GetGuardrails(), by)
	return u.all
}

// leader adds what the leader of a coordinator refers to. What a leader that is an agent uses, the agent refers to.
func (u *list) leader(l *teamv1.LeaderConfig, team string) {
	if l.GetAgent() != "" {
		u.add(Agent, l.GetAgent(), team+" has leader", "coordinator", "leader", "agent")
		return
	}
	by := "the leader of " + team
	u.add(Model, l.GetModel(), by, "coordinator", "leader", "model")
	u.tools(l.GetTools(), by, "coordinator", "leader", "tools")
}

// tools adds the tools of an agent or a leader that the file defines.
func (u *list) tools(names []string, by string, path ...any) {
	for i, name := range names {
		if name != askuser.Name {
			u.add(Tool, name, by, slices.Concat(path, []any{i})...)
		}
	}
}

func (u *list) guardrails(g *teamv1.Guardrails, by string) {
	for _, one := range Guardrails(g) {
		u.add(Schema, one.GetSchema(), by, "guardrails", one.List, one.Index, "schema")
	}
}

// namesOf returns the names of a kind that an agent or team refers to, in order.
func namesOf(c *teamv1.ServerConfig, id string, k Kind) (names []string) {
	for _, r := range Of(c, id) {
		if r.Kind == k {
			names = append(names, r.Name)
		}
	}
	return names
}

// WorkTogether reports whether an agent or team refers to another one.
func WorkTogether(c *teamv1.ServerConfig, id, other string) bool {
	return slices.Contains(namesOf(c, id, Agent), other)
}

// Models returns the models that an agent or a team uses itself, including their fallbacks.
func Models(c *teamv1.ServerConfig, id string) (all []string) {
	for _, name := range namesOf(c, id, Model) {
		all = append(all, WithFallbacks(c, name)...)
	}
	return all
}

// WithFallbacks returns the models that can answer for a model: the model itself, then its
// fallbacks in their order. Fallbacks of a fallback are not used.
func WithFallbacks(c *teamv1.ServerConfig, model string) []string {
	m := c.GetModels()[model]
	if m == nil {
		return nil
	}
	return append([]string{model}, m.GetFallback()...)
}

// Reach returns the given agents and teams and all those they work with, directly or indirectly,
// each once.
func Reach(c *teamv1.ServerConfig, ids ...string) []string {
	var all []string
	seen := map[string]bool{}
	for todo := slices.Clone(ids); len(todo) > 0; todo = todo[1:] {
		id := todo[0]
		if seen[id] {
			continue
		}
		seen[id] = true
		all = append(all, id)
		todo = append(todo, namesOf(c, id, Agent)...)
	}
	return all
}

// ListedGuardrail is a guardrail with its list and its index in that list.
type ListedGuardrail struct {
	*teamv1.Guardrail
	List  string
	Index int
}

// Guardrails returns all guardrails, list by list.
func Guardrails(g *teamv1.Guardrails) []ListedGuardrail {
	var all []ListedGuardrail
	for _, l := range []struct {
		name  string
		items []*teamv1.Guardrail
	}{{"input", g.GetInput()}, {"output", g.GetOutput()}, {"delegation", g.GetDelegation()}, {"result", g.GetResult()}} {
		for i, one := range l.items {
			all = append(all, ListedGuardrail{one, l.name, i})
		}
	}
	return all
}
