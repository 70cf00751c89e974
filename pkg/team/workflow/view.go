package workflow

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/facts"
)

// status is the state of a workflow's step.
type status int

const (
	waiting status = iota // not decided yet
	running
	again // ended, but its `until` is not true yet
	done
	skipped // its `when` was not true, or its result is not needed
	failed  // failed, or skipped because a step before it failed
)

// view is the state of all steps of a workflow, derived from one state of the run.
type view struct {
	*Workflow
	state  *team.State
	facts  *facts.Facts
	status []status
	last   []*team.StepState       // last round of each step; nil before the first
	rounds []int                   // rounds of each step so far
	needed []bool                  // whether a step's result may still be used; see markNeeded
	err    error                   // why a repeated step failed
	failed map[string]*agent.Error // the same for each such step, by the id of its last round
}

// newView returns the view of a state in which the workflow has run the given steps so far.
func (w *Workflow) newView(s *team.State, steps []*team.StepState) (*view, error) {
	n := len(w.nodes)
	v := &view{
		Workflow: w, state: s, facts: facts.Of(s),
		status: make([]status, n), last: make([]*team.StepState, n), rounds: make([]int, n),
	}
	for _, st := range steps {
		if i, ok := w.index[st.Step.GetName()]; ok {
			v.last[i] = st
			v.rounds[i]++
		}
	}
	for i, node := range w.nodes {
		var err error
		if v.status[i], err = v.statusOf(i, node); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// statusOf returns the status of one step.
func (v *view) statusOf(i int, n *node) (status, error) {
	st := v.last[i]
	switch {
	case st == nil:
		return waiting, nil
	case !st.Done:
		return running, nil
	case st.Outcome == teamv1.Outcome_OUTCOME_SKIPPED && st.Step.GetRefusal().GetError().GetReason() == "":
		return skipped, nil
	case st.Dropped:
		return skipped, nil
	case st.Outcome != teamv1.Outcome_OUTCOME_SUCCEEDED && st.Outcome != teamv1.Outcome_OUTCOME_EMPTY:
		return failed, nil
	case n.until == nil:
		return done, nil
	}
	return v.statusAfterRound(i, n)
}

// statusAfterRound returns the status of a repeated step that has ended a round.
func (v *view) statusAfterRound(i int, n *node) (status, error) {
	good, _, err := v.eval(n.until, n, true)
	var missing *expr.MissingData // the next round may have it
	still := "is still not true"
	switch {
	case errors.As(err, &missing):
		still += ": " + missing.Error()
	case err != nil:
		return failed, facts.Failed(fmt.Sprintf("team %q: step %q: until", v.state.Team.ID, n.ID), err)
	case good:
		return done, nil
	}
	if v.rounds[i] < n.max {
		return again, nil
	}
	e := agent.Errorf(agent.CodeInternal, agent.ReasonMaxRounds,
		"step %q of team %q ran %d rounds, the most it may (repeat.max), and %q %s; allow more, or ask for less",
		n.ID, v.state.Team.ID, n.max, agent.Quote(n.Repeat.Until), still).With("step", n.ID)
	if v.state.Team.ReportErrors {
		v.err = e
		if v.failed == nil {
			v.failed = map[string]*agent.Error{}
		}
		v.failed[v.last[i].Step.GetId()] = e
		return failed, nil
	}
	return failed, e
}

// eval evaluates a condition of a step. The condition sees the results of the steps before it and,
// if own is true, its own last result.
func (v *view) eval(e *expr.Expr, n *node, own bool) (bool, *structpb.Struct, error) {
	v.facts.Visible = v.sees(n, own)
	return e.Eval(v.facts.Value)
}

// sees returns whether a step may read the result of another one: of those before it and, if own is true, its own last one.
func (v *view) sees(n *node, own bool) func(step string) bool {
	return func(step string) bool {
		i, ok := v.index[step]
		return ok && (n.ancestors[i] || own && i == n.place)
	}
}

// text returns the text of a step's last result for templates; empty if there is none.
func (v *view) text(step string) string {
	if st := v.last[v.index[step]]; st != nil {
		return agent.Text(st.Message)
	}
	return ""
}

// finished reports whether no needed step is left to run.
func (v *view) finished() bool {
	for i, s := range v.status {
		if s == waiting || (s == running || s == again) && v.needed[i] {
			return false
		}
	}
	return true
}

// markNeeded determines which steps are needed. A step is needed if it is required, if it has no
// successors, or if a successor or a reader of its result is itself needed and remains undecided in
// the current decision.
func (v *view) markNeeded() {
	v.needed = make([]bool, len(v.nodes))
	for _, i := range v.backwards {
		n := v.nodes[i]
		v.needed[i] = len(n.before) == 0 || v.requires(n) ||
			slices.ContainsFunc(n.before, v.staysWaiting) || slices.ContainsFunc(n.readers, v.staysWaiting)
	}
}

// requires reports whether a step, or its member, is required.
func (v *view) requires(n *node) bool {
	return n.Required || slices.ContainsFunc(v.state.Team.Members, func(m team.Member) bool { return m.Required && team.MemberID(&m) == n.Member })
}

// staysWaiting reports whether a needed step remains undecided in the current decision.
func (v *view) staysWaiting(i int) bool {
	if v.status[i] != waiting || !v.needed[i] {
		return false
	}
	ready, blocked := v.joined(v.nodes[i])
	return !ready && !blocked
}

// answer ends the run with the results of the last wave that has results.
func (v *view) answer() (team.Decision, error) {
	var results []*team.StepState
	wave := -1
	for i, n := range v.nodes {
		if v.status[i] != done || n.Human != nil || n.wave < wave {
			continue
		}
		if n.wave > wave {
			wave, results = n.wave, nil
		}
		results = append(results, v.last[i])
	}
	if len(results) > 0 {
		return team.Decision{Reply: team.Joined(results), Joins: team.JoinedIDs(results), Failed: v.failed, Reason: "every step has ended"}, nil
	}
	for i, s := range v.status {
		if s == failed && v.last[i].Err != nil && v.last[i].Outcome != teamv1.Outcome_OUTCOME_SKIPPED {
			return team.Decision{}, v.last[i].Err
		}
	}
	if v.err != nil {
		return team.Decision{}, v.err
	}
	return team.Decision{}, agent.Errorf(agent.CodeInternal, agent.ReasonNoResponse,
		"team %q ended without a response: every step of a member was skipped; change the conditions so that one always runs", v.state.Team.ID)
}
