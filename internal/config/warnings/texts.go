package warnings

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/pkg/team/expr"
)

// text is a text of a team that may read values of a run.
type text struct {
	path string // within the team
	text string
	kind textKind
}

type textKind int

const (
	expression textKind = iota
	template
	instructions
)

// textsOf returns the texts of a team that may read values of a run.
func textsOf(t *teamv1.TeamConfig) []text {
	all := []text{
		{".coordinator.leader.instructions", t.GetCoordinator().GetLeader().GetInstructions(), instructions},
		{".route.instructions", t.GetRoute().GetInstructions(), instructions},
		{".broadcast.instructions", t.GetBroadcast().GetInstructions(), instructions},
		{".supervisor.router.instructions", t.GetSupervisor().GetRouter().GetInstructions(), instructions},
		{".workflow.plan.instructions", t.GetWorkflow().GetPlan().GetInstructions(), instructions},
		{".loop.exit_when", t.GetLoop().GetExitWhen(), expression},
	}
	for i, r := range t.GetSupervisor().GetRules() {
		at := fmt.Sprintf(".supervisor.rules[%d]", i)
		all = append(all, text{at + ".when", r.GetWhen(), expression}, text{at + ".message", r.GetMessage(), template})
	}
	modes.Walk(t.GetWorkflow().GetSteps(), nil, func(s *teamv1.WorkflowStep, path []any) {
		at := ".workflow.steps" + keyPath(path)
		all = append(all, text{at + ".task", s.GetTask(), template}, text{at + ".when", s.GetWhen(), expression},
			text{at + ".repeat.until", s.GetRepeat().GetUntil(), expression}, text{at + ".human.question", s.GetHuman().GetQuestion(), template})
	})
	return all
}

// ofBraces returns warnings about names of values in braces that do not insert the value, ordered by agent and team id.
func ofBraces(c *teamv1.ServerConfig) (all []Warning) {
	for _, id := range slices.Sorted(maps.Keys(c.GetAgents())) {
		a := c.GetAgents()[id]
		b := braces{inputs: modes.InputNames(a.GetInputs())}
		all = append(all, b.warn("agents."+id, text{".instructions", a.GetInstructions(), instructions})...)
	}
	for _, id := range slices.Sorted(maps.Keys(c.GetTeams())) {
		t := c.GetTeams()[id]
		b := braces{inputs: modes.InputNames(t.GetInputs()), outputs: modes.OutputNames(t)}
		modes.Walk(t.GetWorkflow().GetSteps(), nil, func(s *teamv1.WorkflowStep, _ []any) { b.steps = append(b.steps, s.GetId()) })
		for _, text := range textsOf(t) {
			all = append(all, b.warn("teams."+id, text)...)
		}
	}
	return all
}

// braces finds names in braces. It has the names that the texts of an agent or team may insert.
type braces struct{ inputs, outputs, steps []string }

// braced matches a name in one or two braces.
var braced = regexp.MustCompile(`(\{{1,2})\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*(\}{1,2})`)

// warn returns a warning about the first name in a text that is that of a value and inserts nothing.
func (b braces) warn(of string, t text) []Warning {
	for _, m := range braced.FindAllStringSubmatch(t.text, -1) {
		if t.kind == expression || len(m[1]) != len(m[3]) {
			continue
		}
		if hint := b.hint(m[2], t.kind, len(m[1]) == 2); hint != "" {
			return []Warning{{of + t.path, m[0] + " is text and inserts nothing; " + hint}}
		}
	}
	return nil
}

// hint returns what to write for a name in braces, "" if it inserts a value as it is or is not that of a value.
func (b braces) hint(name string, of textKind, double bool) string {
	if of == template && !double {
		for _, meant := range []string{name, "inputs." + name, "outputs." + name, "steps." + name + ".text"} {
			if _, err := expr.CompileTemplate("{{"+meant+"}}", b.steps, expr.Names{Inputs: b.inputs, Outputs: b.outputs}); err == nil {
				return "write {{" + meant + "}}"
			}
		}
	}
	if of != instructions {
		return ""
	}
	input := strings.TrimPrefix(name, "inputs.")
	switch {
	case name == "input":
		return "remove it: the model is given the message beside its instructions"
	case slices.Contains(b.inputs, input) && (!double || input == name): // {{inputs.NAME}} inserts it
		return "write {{inputs." + input + "}}"
	}
	return ""
}
