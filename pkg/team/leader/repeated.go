package leader

import (
	"encoding/json"
	"fmt"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

// defaultRepeated is the default of limits.max_repeated_calls.
const defaultRepeated = 6

// repeatedLimit returns the limit of identical calls that fail in the same way; 0 means no limit.
func repeatedLimit(l *teamv1.Limits) int {
	if l == nil || l.MaxRepeatedCalls == nil {
		return defaultRepeated
	}
	return int(l.GetMaxRepeatedCalls())
}

// failedCall is a tool call that has failed: two that are equal have the same tool, arguments and error.
type failedCall struct{ tool, arguments, text string }

// callOf returns the failed call of a step; ok is false for all other steps.
func callOf(s *team.State, st *team.StepState) (c failedCall, ok bool) {
	if st.Step.GetKind() != teamv1.Step_KIND_TOOL || !st.Tool.GetIsError() {
		return failedCall{}, false
	}
	return failedCall{st.Step.GetName(), canonical(s.Arguments(st)), st.Tool.GetText()}, true
}

// canonical returns JSON in a form in which equal values are equal texts, and other texts unchanged.
func canonical(arguments string) string {
	var v any
	if json.Unmarshal([]byte(arguments), &v) != nil {
		return arguments
	}
	b, err := json.Marshal(v)
	if err != nil {
		return arguments
	}
	return string(b)
}

// repeats returns how often the call of a step had failed in the same way when the step ended, itself
// included. It is 0 for a step that is no failed call.
func repeats(s *team.State, st *team.StepState) int {
	c, ok := callOf(s, st)
	if !ok {
		return 0
	}
	n := 0
	for _, other := range s.Steps {
		if o, failed := callOf(s, other); failed && o == c && other.EndIndex <= st.EndIndex {
			n++
		}
	}
	return n
}

// repeatedCall returns the error of a run whose last round has a call that failed too often in the same
// way; nil if it has none.
func (l *leader) repeatedCall(s *team.State, r *round) error {
	if l.maxRepeated == 0 {
		return nil
	}
	for _, st := range r.steps {
		if n := repeats(s, st); n >= l.maxRepeated {
			return agent.Errorf(agent.CodeInternal, agent.ReasonRepeatedCall,
				"%q called %s %d times with the same arguments and got the same error, the most it may (limits.max_repeated_calls): %s; say in its instructions what to do then, or correct the tool",
				s.Team.ID, st.Step.GetName(), n, agent.Quote(st.Tool.GetText()))
		}
	}
	return nil
}

// repeatNote returns what the model is told beside the error of a call that it repeats in vain; empty if
// it need not be told.
func (l *leader) repeatNote(s *team.State, st *team.StepState) string {
	n := repeats(s, st)
	if l.maxRepeated == 0 || n < max(l.maxRepeated/2, 2) {
		return ""
	}
	return fmt.Sprintf("\n\n[This call has failed %d times with the same error. Do not repeat it: change the arguments, use another tool, or answer with what you have.]", n)
}
