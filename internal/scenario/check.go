package scenario

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/internal/config/source"
)

// known reports replacements for models, agents and tools that the configuration does not define.
func (r *reader) known(path []any, of replacing) {
	server := r.loaded.Server
	for _, kind := range []struct {
		section, word string
		names, all    []string
	}{
		{"models", "model", sorted(of.GetModels()), append(sorted(server.GetModels()), config.AllModels)},
		{"agents", "agent", sorted(of.GetAgents()), sorted(server.GetAgents())},
		{"tools", "tool", sorted(of.GetTools()), sorted(server.GetTools())},
	} {
		for _, name := range kind.names {
			if !slices.Contains(kind.all, name) {
				r.KeyFault(fmt.Sprintf("%s has no %s %q", r.loaded.File, kind.word, name), source.Suggest(name, kind.all), slices.Concat(path, []any{kind.section, name})...)
			}
		}
	}
}

// sorted returns the keys of a map in ascending order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// check reports names in a scenario that the configuration does not define, and models, agents and
// tools that the scenario would reach over the network.
func (r *reader) check(s *Scenario) {
	server := s.def.Server
	team, agent := server.GetTeams()[s.Team], server.GetAgents()[s.Team]
	all := slices.Sorted(slices.Values(append(sorted(server.GetTeams()), sorted(server.GetAgents())...)))
	switch {
	case s.Team == "":
		r.Fault("the scenario names no team, and "+s.def.File+" has no default agent", "add team: one of "+strings.Join(all, ", "), s.path...)
		return
	case team == nil && agent == nil:
		r.Fault(fmt.Sprintf("%s has no team or agent %q", s.def.File, s.Team), source.Suggest(s.Team, all), r.teamPath(s)...)
		return
	case !s.def.Used[s.Team]:
		r.Fault(fmt.Sprintf("agent %q is not served: no team uses it", s.Team), "ask a team", r.teamPath(s)...)
		return
	}
	declared := slices.Concat(sorted(team.GetInputs()), sorted(agent.GetInputs()))
	for _, name := range sorted(s.inputs) {
		if !slices.Contains(declared, name) {
			r.KeyFault(fmt.Sprintf("%q has no input %q", s.Team, name), cmp.Or(source.Suggest(name, declared), "remove it, or declare it in inputs of the team"), slices.Concat(s.path, []any{"inputs", name})...)
		}
	}
	models, agents, tools := s.def.Absent(s.Team)
	for _, name := range models {
		r.Fault(fmt.Sprintf("%q uses model %q, which is called over the network", s.Team, name), "add models: {"+name+": {file: SCRIPT.yaml}} to the test, where the file says what the model answers", s.path...)
	}
	for _, id := range agents {
		r.Fault(fmt.Sprintf("%q uses agent %q, which is on another server", s.Team, id), "add agents: {"+id+": {steps: [{text: what it says}]}}", s.path...)
	}
	for _, name := range tools {
		problem := fmt.Sprintf("%q uses tool %q, which is called over the network", s.Team, name)
		if r.real {
			problem = fmt.Sprintf("%q uses tool %q, which has no script; a real model could call it", s.Team, name)
		}
		r.Fault(problem, "add tools: {"+name+": {calls: [{name: FUNCTION, text: its result}]}}, or {start: true} to call it for real", s.path...)
	}
	for i := range s.turns {
		c := &checks{reader: r, turn: &s.turns[i], scenario: s}
		c.names(team)
		c.texts()
	}
}

// teamPath returns the path where the team of a scenario is set, or the path of the scenario.
func (r *reader) teamPath(s *Scenario) []any {
	if path := slices.Concat(s.path, []any{"team"}); r.Has(path...) {
		return path
	}
	if r.Has("team") {
		return []any{"team"}
	}
	return s.path
}

// checks finds faults in the expectation of a turn.
type checks struct {
	*reader
	*turn
	scenario *Scenario
}

// names reports members, rules and steps that the team does not have.
func (c *checks) names(team *teamv1.TeamConfig) {
	w := c.GetWant()
	members, rules, steps := memberIDs(team), ruleIDs(team), stepIDs(team.GetWorkflow().GetSteps())
	if team.GetWorkflow().GetPlan() != nil { // a model names them
		steps = slices.Concat(w.GetSteps(), w.GetSkipped())
	}
	for _, list := range []struct {
		key, what   string
		names, have []string
	}{
		{"members", "member", w.GetMembers(), members}, {"agents", "member", firsts(w.GetAgents()), members}, {"failed", "member", firsts(w.GetFailed()), members},
		{"rules", "rule", w.GetRules(), rules}, {"steps", "step", w.GetSteps(), steps}, {"skipped", "step", w.GetSkipped(), steps},
	} {
		for i, name := range list.names {
			if !slices.Contains(list.have, name) {
				c.Fault(c.lacks(list.what, name), hint(name, list.have), c.want(list.key, i)...)
			}
		}
	}
	c.paths("given", w.GetGiven(), members)
	c.paths("said", w.GetSaid(), members)
}

// paths reports paths that do not begin with a member of the team.
func (c *checks) paths(key string, texts map[string]*teamv1.TextExpectation, members []string) {
	for _, path := range sorted(texts) {
		if name := first(path); !slices.Contains(members, name) {
			c.KeyFault(c.lacks("member", name), hint(name, members), c.want(key, path)...)
		}
	}
}

func (c *checks) lacks(what, name string) string {
	return fmt.Sprintf("%q has no %s %q", c.scenario.Team, what, name)
}

func hint(name string, have []string) string {
	return cmp.Or(source.Suggest(name, have), "the team has none; remove this")
}

// first returns the member that a path begins with.
func first(path string) string {
	id, _, _ := strings.Cut(path, "/")
	return id
}

func firsts(paths []string) []string {
	ids := make([]string, len(paths))
	for i, p := range paths {
		ids[i] = first(p)
	}
	return ids
}

func memberIDs(t *teamv1.TeamConfig) []string {
	var ids []string
	if t == nil {
		return nil
	}
	for _, m := range modes.Members(t) {
		ids = append(ids, cmp.Or(m.ID, m.Agent))
	}
	return ids
}

func ruleIDs(t *teamv1.TeamConfig) []string {
	var ids []string
	for _, rule := range t.GetSupervisor().GetRules() {
		ids = append(ids, rule.GetId())
	}
	return ids
}

func stepIDs(steps []*teamv1.WorkflowStep) []string {
	var ids []string
	for _, s := range steps {
		if s.GetId() != "" && len(s.GetParallel()) == 0 {
			ids = append(ids, s.GetId())
		}
		ids = append(ids, stepIDs(s.GetParallel())...)
	}
	return ids
}

// texts reports invalid regular expressions.
func (c *checks) texts() {
	w := c.GetWant()
	check := func(t *teamv1.TextExpectation, path ...any) {
		if _, err := regexp.Compile(t.GetMatches()); err != nil {
			c.Fault(err.Error(), "correct it; the syntax is RE2", c.want(append(path, "matches")...)...)
		}
	}
	check(w.GetReply(), "reply")
	check(w.GetError(), "error")
	for _, path := range sorted(w.GetGiven()) {
		check(w.GetGiven()[path], "given", path)
	}
	for _, path := range sorted(w.GetSaid()) {
		check(w.GetSaid()[path], "said", path)
	}
}
