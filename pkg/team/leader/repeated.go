package leader

import (
	"encoding/json"
	"fmt"
	"strings"

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
	if strings.TrimSpace(arguments) == "" {
		return "{}"
	}
	var v any
	d := json.NewDecoder(strings.NewReader(arguments))
	d.UseNumber() // calls that differ in the last digits of an id are not the same
	if d.Decode(&v) != nil || d.More() {
		return arguments
	}
	b, err := json.Marshal(v)
	if err != nil {
		return arguments
	}
	return string(b)
}

// repeats returns, for each failed tool call of the run, the number of turns up to it in which the same call
// has failed with the same error. Several calls of one turn count once, because the model has not seen their errors.
func repeats(s *team.State) map[*team.StepState]int {
	type seen struct{ turns, last int }
	var counts map[failedCall]seen
	var all map[*team.StepState]int
	turn := 0
	for _, st := range s.Steps {
		if st.Step.GetKind() == teamv1.Step_KIND_MODEL {
			turn++
		}
		c, ok := callOf(s, st)
		if !ok {
			continue
		}
		if all == nil {
			counts, all = map[failedCall]seen{}, map[*team.StepState]int{}
		}
		n := counts[c]
		if n.last != turn {
			n = seen{n.turns + 1, turn}
			counts[c] = n
		}
		all[st] = n.turns
	}
	return all
}

// repeatedCall returns the error of a run whose last round has a call that failed too often in the same
// way; nil if it has none.
func (l *leader) repeatedCall(s *team.State, r *round) error {
	if l.maxRepeated == 0 {
		return nil
	}
	counts := repeats(s)
	for _, st := range r.steps {
		if n := counts[st]; n >= l.maxRepeated {
			said := ""
			if text := st.Tool.GetText(); text != "" {
				said = ": " + agent.Quote(text)
			}
			return agent.Errorf(agent.CodeInternal, agent.ReasonRepeatedCall,
				"%q called %s with the same arguments and got the same error in %d turns, the most it may (limits.max_repeated_calls)%s; say in its instructions what to do then, or correct the tool",
				s.Team.ID, st.Step.GetName(), n, said)
		}
	}
	return nil
}

// repeatNote returns what the model is told beside the error of a call that has failed in n turns; empty if
// it need not be told.
func (l *leader) repeatNote(n int) string {
	if l.maxRepeated == 0 || n < max(l.maxRepeated/2, 1) {
		return ""
	}
	return fmt.Sprintf("\n\n[This call has failed %d times with the same error. Do not repeat it: change the arguments, use another tool, or answer with what you have.]", n)
}
