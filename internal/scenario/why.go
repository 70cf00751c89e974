package scenario

import (
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// reason explains why a member was chosen: the rule or model that decided, the values it saw, and
// the line of the configuration. by is nil for decisions of agents other than the team.
func (j *judge) reason(by *decision, path string) string {
	if by == nil {
		if i := strings.LastIndex(path, "/"); i > 0 {
			return path[:i] + " gave it to " + path[i+1:]
		}
		return ""
	}
	where := ""
	if line := j.where(by); line > 0 {
		where = fmt.Sprintf(" (%s:%d)", j.scenario.def.File, line)
	}
	return fmt.Sprintf("turn %d: %s%s", by.turn, words(by), where)
}

// ending explains why the run ended.
func (j *judge) ending() string {
	if e := j.Top.End.GetError(); e != nil {
		return e.GetReason() + ": " + e.GetMessage()
	}
	if n := len(j.decisions); n > 0 {
		return j.reason(j.decisions[n-1], "")
	}
	return ""
}

// words describes a decision.
func words(d *decision) string {
	if d.GetRule() == "" {
		return d.GetReason()
	}
	s := fmt.Sprintf("rule %q matched", d.GetRule())
	if saw := values(d.GetValues()); saw != "" {
		return s + " because " + saw
	}
	return s + ": " + d.GetReason()
}

// values formats the values that a rule was evaluated with.
func values(v *structpb.Struct) string {
	var saw []string
	for _, name := range sorted(v.GetFields()) {
		b, err := json.Marshal(v.GetFields()[name].AsInterface())
		if err != nil {
			continue
		}
		text := string(b)
		if r := []rune(text); len(r) > 80 {
			text = string(r[:80]) + "…"
		}
		saw = append(saw, name+" was "+text)
	}
	return strings.Join(saw, " and ")
}

// where returns the line of the configuration that led to a decision, or 0 if it is not known.
func (j *judge) where(by *decision) int {
	def, id := j.scenario.def, j.scenario.Team
	team := def.Server.GetTeams()[id]
	switch {
	case team.GetSupervisor() != nil:
		for i, rule := range team.GetSupervisor().GetRules() {
			if rule.GetId() == by.GetRule() {
				return def.Line("teams", id, "supervisor", "rules", i)
			}
		}
		return def.Line("teams", id, "supervisor", "router")
	case team.GetWorkflow().GetPlan() != nil:
		return def.Line("teams", id, "workflow", "plan")
	case team.GetWorkflow() != nil && len(by.GetSteps()) > 0:
		return stepLine(def, by.GetSteps()[0].GetName(), team.GetWorkflow().GetSteps(), "teams", id, "workflow", "steps")
	}
	for _, mode := range []string{"workflow", "coordinator", "swarm", "route", "broadcast"} {
		if line := def.Line("teams", id, mode); line > 0 {
			return line
		}
	}
	return def.Line("agents", id)
}

// liner returns the line number of a path in a configuration file, or 0.
type liner interface{ Line(path ...any) int }

// stepLine returns the line of a step of a workflow, or 0.
func stepLine(def liner, name string, steps []*teamv1.WorkflowStep, path ...any) int {
	for i, s := range steps {
		at := append(path[:len(path):len(path)], i)
		if s.GetId() == name {
			return def.Line(at...)
		}
		if line := stepLine(def, name, s.GetParallel(), append(at, "parallel")...); line > 0 {
			return line
		}
	}
	return 0
}
