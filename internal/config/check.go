package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// checker finds the faults that validation rules on single messages cannot: undefined names,
// cycles, invalid expressions, and missing variables or files that a used part needs.
type checker struct {
	*document
	*Config
	env  func(string) (string, bool)
	gaps []missing
	// presumedMembers holds, by team, the agents that misspelled members were probably meant to be.
	presumedMembers map[string][]string
	searches        int // for names that are meant; see maxSearches
}

// maxSearches is the number of faults of a document for which the name that was meant is searched among the
// names that the document, and those it may refer to, define. There may be thousands of both.
const maxSearches = 20

// search calls f, which searches for a name, and returns the hint that it gives. After maxSearches calls it returns "".
func (k *checker) search(f func() string) string {
	if k.searches == maxSearches {
		return ""
	}
	k.searches++
	return f()
}

func (k *checker) check() {
	k.ids()
	k.access()
	k.auth()
	k.fallbacks()
	k.files()
	k.settings()
	k.addresses()
	k.egress()
	k.tools()
	for _, id := range sorted(k.Server.GetAgents()) {
		if k.ended() {
			return
		}
		k.agent(id, k.Server.GetAgents()[id])
	}
	for _, id := range sorted(k.Server.GetTeams()) {
		if k.ended() {
			return
		}
		k.team(id, k.Server.GetTeams()[id])
	}
	if id := k.Server.GetServer().GetDefaultAgent(); id != "" {
		k.known(id, "default_agent is", "server", "default_agent")
	}
	k.nesting()
	k.markUsed()
	k.inheritance()
	k.needs()
	k.accounts()
	k.costs()
	k.scripts()
	k.guardrails()
	k.certificates()
	k.cards()
}

// ids reports reserved words, and ids used by both an agent and a team.
func (k *checker) ids() {
	for id := range k.Server.GetAgents() {
		k.reserved(id, "agents", id)
	}
	for id := range k.Server.GetTeams() {
		k.reserved(id, "teams", id)
		if k.Server.GetAgents()[id] != nil {
			k.fault(k.keyAt("teams", id), fmt.Sprintf("team %q has the id of an agent", id),
				"agents and teams share one id space; the agent is in "+k.describePlace(k.keyAt("agents", id)))
		}
	}
}

func (k *checker) reserved(id string, path ...any) {
	if plainID.MatchString(id) && !agent.ValidID(id) {
		k.fault(k.keyAt(path...), fmt.Sprintf("%q is a reserved word", id), "choose another id; this one names a path of the server")
	}
}

// known reports whether id names an agent or a team. If it does not, known adds a fault, unless
// another fault in the file may be the reason.
func (k *checker) known(id, subject string, path ...any) bool {
	defined := k.Server.GetAgents()[id] != nil || k.Server.GetTeams()[id] != nil
	account := k.userAccount(path...)
	if defined && k.visible(id, account) {
		return k.usable("agents", id, path...)
	}
	if k.isDamaged("agents") || k.isDamaged("teams") || k.isDamaged(path...) {
		return false
	}
	n, _ := k.at(path...)
	k.fault(n, fmt.Sprintf("%s %q, which is not defined", subject, id), k.search(func() string { return k.suggestAgent(id, account) }))
	return false
}

// suggestAgent suggests the agent or team with the most similar name and the line that defines it, of
// those that an account may see.
func (k *checker) suggestAgent(id, account string) string {
	all := slices.Concat(sorted(k.Server.GetAgents()), sorted(k.Server.GetTeams()))
	all = slices.DeleteFunc(all, func(id string) bool { return !k.visible(id, account) })
	near := nearest(id, all)
	if near == "" {
		slices.Sort(all)
		return listed(all)
	}
	section := "agents"
	if k.Server.GetTeams()[near] != nil {
		section = "teams"
	}
	return fmt.Sprintf("did you mean %q (%s)?", near, k.describePlace(k.keyAt(section, near)))
}

// model reports a model name that is not defined.
func (k *checker) model(name, subject string, path ...any) {
	switch {
	case name == "" || k.isDamaged("models") || k.isDamaged(path...):
		return
	case k.Server.GetModels()[name] != nil:
		k.usable("models", name, path...)
		return
	}
	n, _ := k.at(path...)
	k.fault(n, fmt.Sprintf("%s uses model %q, which is not defined", subject, name),
		k.search(func() string {
			return cmp.Or(suggest(name, sorted(k.Server.GetModels())), "no models are defined; add it under models")
		}))
}

func (k *checker) agent(id string, a *teamv1.AgentConfig) {
	subject := fmt.Sprintf("agent %q", id)
	k.model(a.GetModel(), subject, "agents", id, "model")
	k.toolNames(a.GetTools(), subject, "agents", id, "tools")
	k.skills(a, id)
	for i, s := range a.GetScripted().GetSteps() {
		if call := s.GetCall(); call != "" {
			k.known(call, subject+" calls", "agents", id, "scripted", "steps", i, "call")
		}
	}
	k.limits(a.GetLimits(), limitedAgent, "agents", id, "limits")
}

// sorted returns the keys of a map in ascending order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// nesting reports teams that contain themselves, directly or through other teams.
func (k *checker) nesting() {
	done := map[string]bool{}
	for _, id := range sorted(k.Server.GetTeams()) {
		k.visitForCycles(id, nil, done)
	}
	for _, id := range sorted(k.Server.GetAgents()) {
		k.visitForCycles(id, nil, done)
	}
}

// visitForCycles follows the edges of id depth first. trail is the path that led to id; done holds
// the ids that were visited completely.
func (k *checker) visitForCycles(id string, trail []edge, done map[string]bool) {
	for i, e := range trail {
		if e.from == id {
			k.reportCycle(trail[i:])
			return
		}
	}
	if done[id] {
		return
	}
	for _, e := range k.edges(id) {
		k.visitForCycles(e.to, append(trail, e), done)
	}
	done[id] = true
}

// edge is a reference from one agent or team to another, at the given path of the file.
type edge struct {
	from, to string
	path     []any
}

// reportCycle reports a cycle of references.
func (k *checker) reportCycle(trail []edge) {
	var names, places []string
	if len(k.added) > 0 { // report the cycle in the addition that closes it
		last := slices.MaxFunc(trail, func(a, b edge) int { return cmp.Compare(k.lineOf(a), k.lineOf(b)) })
		i := slices.IndexFunc(trail, func(e edge) bool { return e.from == last.from })
		trail = slices.Concat(trail[i:], trail[:i])
	}
	for _, e := range trail {
		n, _ := k.at(e.path...)
		names = append(names, e.from)
		file, line := k.locate(n.Line)
		places = append(places, fmt.Sprintf("%s:%d", file, line))
	}
	names = append(names, trail[0].from)
	n, _ := k.at(trail[0].path...)
	k.fault(n, "teams form a cycle: "+strings.Join(names, " -> "),
		strings.Join(places, " -> ")+"   break it by removing one member")
}

func (k *checker) lineOf(e edge) int {
	n, _ := k.at(e.path...)
	return n.Line
}

// edges returns the references from id to the agents and teams it works with.
func (k *checker) edges(id string) []edge {
	var out []edge
	if a := k.Server.GetAgents()[id]; a != nil {
		for i, s := range a.GetScripted().GetSteps() {
			if s.GetCall() != "" {
				out = append(out, edge{id, s.GetCall(), []any{"agents", id, "scripted", "steps", i, "call"}})
			}
		}
		return out
	}
	t := k.Server.GetTeams()[id]
	for i, m := range t.GetMembers() {
		out = append(out, edge{id, m.GetAgent(), []any{"teams", id, "members", i, "agent"}})
	}
	members := memberIDs(t.GetMembers())
	walk(t.GetWorkflow().GetSteps(), []any{"teams", id, "workflow", "steps"}, func(s *teamv1.WorkflowStep, at []any) {
		if s.GetAgent() != "" && !slices.Contains(members, s.GetAgent()) {
			out = append(out, edge{id, s.GetAgent(), append(at, "agent")})
		}
	})
	for _, r := range reviews(id, t) {
		if judge := r.GetJudge().GetAgent(); judge != "" {
			out = append(out, edge{id, judge, append(r.path, "judge", "agent")})
		}
	}
	return out
}

// markUsed marks everything that is served: all teams, the default agent, agents that an addition
// defines, and what all of these refer to. If the file defines no teams, all agents are served.
func (k *checker) markUsed() {
	roots := sorted(k.Server.GetTeams())
	noTeams := !slices.ContainsFunc(roots, func(id string) bool { return k.additions[id] == "" })
	for _, id := range sorted(k.Server.GetAgents()) {
		if noTeams || k.additions[id] != "" {
			roots = append(roots, id)
		}
	}
	if id := k.Server.GetServer().GetDefaultAgent(); id != "" {
		roots = append(roots, id)
	}
	for _, id := range k.Reach(roots...) {
		k.Used[id] = true
	}
}

// Reach returns the given agents and teams and all those they work with, directly or indirectly,
// each once.
func (c *Config) Reach(ids ...string) []string {
	k := &checker{Config: c}
	var all []string
	seen := map[string]bool{}
	for todo := slices.Clone(ids); len(todo) > 0; todo = todo[1:] {
		id := todo[0]
		if seen[id] {
			continue
		}
		seen[id] = true
		all = append(all, id)
		for _, e := range k.edges(id) {
			todo = append(todo, e.to)
		}
	}
	return all
}
