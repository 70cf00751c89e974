// Package facts provides the state of a run as values for expressions and templates.
package facts

import (
	"errors"

	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
)

// Facts are the values of one state. They are computed on demand and cached. Not safe for
// concurrent use.
type Facts struct {
	// Visible reports whether expressions and templates may read the step of a workflow; nil means all steps.
	Visible func(step string) bool

	state   *team.State
	results map[*team.StepState]map[string]any
}

// Of returns the facts of a state.
func Of(s *team.State) *Facts {
	return &Facts{state: s, results: map[*team.StepState]map[string]any{}}
}

// Value returns the value of a variable of rules or steps, as [expr.Values] does.
func (f *Facts) Value(name string) any {
	switch name {
	case "input":
		return agent.Text(f.state.Input)
	case "context":
		return values(f.state.Context)
	case "turn":
		return int64(f.state.Rounds) + 1
	case "last":
		return f.last()
	case "results":
		return f.members()
	case "steps":
		return f.steps()
	case "inputs":
		return values(f.state.Inputs)
	case "outputs":
		all := map[string]any{}
		for name, st := range f.outputs() {
			all[name] = f.result(st)
		}
		return all
	}
	if st := f.state.LastOf(name); st != nil {
		return f.result(st)
	}
	return map[string]any{}
}

// Given returns the values for a template. text returns the text of a step's last result; empty if
// there is none.
func (f *Facts) Given(text func(step string) string) *expr.Given {
	return &expr.Given{
		Input: f.state.Input, Context: f.state.Context, Brief: f.state.Brief, Step: text, Inputs: f.state.Inputs,
		Output: func(name string) string {
			if st := f.outputs()[name]; st != nil {
				return agent.Text(st.Message)
			}
			return ""
		},
	}
}

// outputs returns the last visible step with each name.
func (f *Facts) outputs() map[string]*team.StepState {
	return f.state.Outputs(func(st *team.StepState) bool { return f.Visible == nil || f.Visible(st.Step.GetName()) })
}

// last returns the last response; an empty map before the first.
func (f *Facts) last() map[string]any {
	l := f.state.Last
	if l == nil {
		return map[string]any{}
	}
	r := expr.Result(l.Message, l.Outcome)
	r["member"] = l.Member
	return r
}

// members returns the last result of each member.
func (f *Facts) members() map[string]any {
	all := map[string]any{}
	for _, st := range f.state.Steps {
		if st.Done && st.ByMember() {
			all[st.Step.GetMember()] = f.result(st)
		}
	}
	return all
}

// steps returns the last result of each visible step.
func (f *Facts) steps() map[string]any {
	all := map[string]any{}
	for _, st := range f.state.Steps {
		if name := st.Step.GetName(); st.Done && st.Step.GetKind() != teamv1.Step_KIND_MODEL && (f.Visible == nil || f.Visible(name)) {
			all[name] = f.result(st)
		}
	}
	return all
}

func (f *Facts) result(st *team.StepState) map[string]any {
	r, ok := f.results[st]
	if !ok {
		r = expr.Result(st.Message, st.Outcome)
		f.results[st] = r
	}
	return r
}

// Failed returns the error of a run whose condition could not be evaluated, because of err from
// [expr.Expr.Eval]. what names the team and the condition.
func Failed(what string, err error) error {
	e := agent.Errorf(agent.CodeInternal, agent.ReasonSchedulerError, "%s: %s", what, err)
	var missing *expr.MissingData
	if errors.As(err, &missing) {
		e.Reason = agent.ReasonConditionDataMissing
	}
	return e
}

// values returns values as expressions read them.
func values(of map[string]*structpb.Value) map[string]any {
	all := make(map[string]any, len(of))
	for k, v := range of {
		all[k] = v.AsInterface()
	}
	return all
}
