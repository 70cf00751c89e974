// Package leader has the scheduler of teams that a model leads, and model-backed agents.
package leader

import (
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// Names of the turns that have a special prompt.
const (
	resultsTurn = "results" // asynchronous delegations have ended
	finalTurn   = "final"   // a limit is reached: answer without tools
)

// maxRefused is the number of consecutive turns with only refused calls after which the run ends.
const maxRefused = 10

// leader is the scheduler of model-backed agents and of teams that a model leads. It alternates
// model turns and the calls that they ask for, until a turn has no call. Without a crew it is a
// single agent.
type leader struct {
	team.Base
	instructions string
	tools        []agent.ToolSpec // the agent's own tools
	crew         *crew            // the members; nil for a single agent
	parallel     bool
	open         OpenDelegations
	onLimit      OnLimit
	wake         bool
	strict       bool
	sticky       bool
	maxTurns     int
	maxDelegated int
	maxRepeated  int
	output       OutputFormat    // format of answers; nil allows any
	schema       json.RawMessage // schema of answers; nil allows any

	described atomic.Pointer[description] // cache for the next prompt
}

var _ team.Scheduler = (*leader)(nil)

// Traits implements [team.Scheduler].
func (l *leader) Traits() team.Traits {
	t := team.Traits{
		UsesTools: true, Interleaves: true, Detaches: l.open == DetachOpen, WakesOnDetachedEnd: l.wake, WithholdsText: l.output != nil,
		ReservedTools: []string{team.TransferTool, prompt.ReadTool}, Entry: team.Entry{Model: true},
	}
	if l.onLimit == Finalize {
		t.FinalTurn = finalTurn
	}
	if l.crew != nil {
		t.History, t.Warnings = team.HistoryParent, l.crew.warnings()
		t.ReservedTools = append(t.ReservedTools, l.crew.tools()...)
	}
	return t
}

// Handles implements [team.Scheduler]. Refused calls and canceled steps are reported to the model,
// even in teams where failures end the run. Calls that limits.max_steps refused are reported only
// with Finalize.
func (l *leader) Handles(st *team.StepState) bool {
	if st.Refusal == nil && st.Outcome != teamv1.Outcome_OUTCOME_CANCELED {
		return false
	}
	return !st.BeyondLimit() || l.onLimit == Finalize
}

// round is a turn of the model and the steps that answer its calls, in the order of the calls.
type round struct {
	turn  *team.StepState
	steps []*team.StepState
}

func (r *round) calls() []*teamv1.ToolCall { return r.turn.Turn.GetToolCalls() }

// lastRound returns the last turn and the steps of its calls so far. Before the first turn, the turn
// has no Step.
func lastRound(s *team.State) *round {
	for i := len(s.Steps) - 1; i >= 0; i-- {
		if s.Steps[i].Step.GetKind() == teamv1.Step_KIND_MODEL {
			return &round{turn: s.Steps[i], steps: s.Steps[i+1:]}
		}
	}
	return &round{turn: &team.StepState{}}
}

// Next implements [team.Scheduler].
func (l *leader) Next(s *team.State) (team.Decision, error) {
	d, err := l.next(s)
	return l.withOwner(s, d), err
}

func (l *leader) next(s *team.State) (team.Decision, error) {
	if len(s.Steps) == 0 {
		if d, ok := l.toOwner(s); ok {
			return d, nil
		}
		return modelStep("", "the message is new"), nil
	}
	r := lastRound(s)
	if r.turn.Step == nil {
		return l.fromOwner(s), nil
	}
	if d, ok := l.shorter(s, r); ok {
		return d, nil
	}
	if err := l.fatalError(s, r); err != nil {
		return l.atLimit(s, r, err)
	}
	switch {
	case r.turn.Step.GetName() == finalTurn:
		return l.reply(s, r)
	case len(r.steps) < len(r.calls()):
		return l.call(s, r), nil
	}
	if len(r.calls()) == 0 {
		return l.answered(s, r)
	}
	if t, at := l.firstTransfer(s, r); t != nil {
		return handOver(l.withResults(s, r, t, at)), nil
	}
	if err := l.refusalError(s, r); err != nil {
		return l.atLimit(s, r, err)
	}
	if l.skipsSummary(r) && r.turn.ReceivedBefore == len(s.Received) && len(s.Open()) == 0 {
		return team.Decision{Reply: team.Joined(r.steps), Joins: team.JoinedIDs(r.steps), Reason: "the reply of " + calledBy(r.steps) + " is the team's"}, nil
	}
	return l.turn(s, r, "", "the tools have answered")
}

// fatalError returns the error that ends the run: the model failed, or a tool crashed; nil if there
// is none.
func (l *leader) fatalError(s *team.State, r *round) error {
	if r.turn.Err != nil {
		return r.turn.Err
	}
	for _, st := range r.steps {
		if st.Err != nil && st.Refusal == nil && st.Step.GetKind() == teamv1.Step_KIND_TOOL {
			return st.Err
		}
	}
	return nil
}

// refusalError returns the error that ends the run because of refused calls: the limit of
// delegations, a task or a failing call that was repeated too often, or too many turns with only
// refusals; nil if there is none.
func (l *leader) refusalError(s *team.State, r *round) error {
	if err := l.repeatedTask(s); err != nil {
		return err
	}
	if err := l.repeatedCall(s, r); err != nil {
		return err
	}
	for _, st := range r.steps {
		if endsRun(s, st) {
			return st.Err
		}
	}
	n, last := refusedTurns(s.Steps)
	if n < maxRefused {
		return nil
	}
	return agent.Errorf(agent.CodeInternal, agent.ReasonDelegationFailed,
		"all tool calls of %q were refused in %d model turns in a row, so the run ends; say in its instructions what it may call. The last refusal: %s", s.Team.ID, n, last)
}

// refusedTurns returns how many of the last turns had only refused calls, and why the last call was
// refused.
func refusedTurns(steps []*team.StepState) (n int, last string) {
	for _, st := range steps {
		switch {
		case st.Step.GetKind() == teamv1.Step_KIND_MODEL:
			if len(st.Turn.GetToolCalls()) > 0 {
				n++
			}
		case st.Outcome != teamv1.Outcome_OUTCOME_REJECTED || st.Err == nil:
			n = 0
		default:
			last = st.Err.Message
		}
	}
	return n, last
}

// repeatedTask returns the refusal of a task that was given to the same member too often. The first
// repeat is only reported to the leader, unless StrictCycles is set.
func (l *leader) repeatedTask(s *team.State) error {
	type given struct{ member, text string }
	repeats := map[given]int{}
	for _, st := range s.Steps {
		if st.Refusal == nil || st.Refusal.Reason != agent.ReasonCycleDetected {
			continue
		}
		v := given{member: st.Step.GetMember(), text: prompt.HandedOver(st.Given)}
		if repeats[v]++; repeats[v] > 1 || l.strict {
			return st.Refusal
		}
	}
	return nil
}

// endsRun reports whether the error of a step ends the run because it comes from a limit of the
// team itself, not of a member.
func endsRun(s *team.State, st *team.StepState) bool {
	if st.Outcome == teamv1.Outcome_OUTCOME_REJECTED && st.Err != nil {
		switch st.Err.Reason {
		case agent.ReasonMaxDelegations, agent.ReasonMaxIterations:
			return true
		}
	}
	return agent.Binds(st.Err, s.Path)
}

// limitBefore returns the error of the limit that the final turn follows.
func (l *leader) limitBefore(s *team.State) error {
	final := len(s.Steps) - 1
	for final > 0 && s.Steps[final].Step.GetName() != finalTurn {
		final--
	}
	before := lastRound(&team.State{Steps: s.Steps[:final]})
	if err := l.fatalError(s, before); err != nil {
		return err
	}
	if err := l.refusalError(s, before); err != nil {
		return err
	}
	return l.turnsError(s, modelTurns(s)-1)
}

// finalized returns the limit that the run has reached, if r is the final turn; empty if it is not.
func (l *leader) finalized(s *team.State, r *round) string {
	if r.turn.Step.GetName() != finalTurn {
		return ""
	}
	return agent.AsError(l.limitBefore(s)).Message
}

// turnsError returns the error of a run with n turns of the model, the most it may have.
func (l *leader) turnsError(s *team.State, n int) error {
	noun := "agent"
	if l.crew != nil {
		noun = "team"
	}
	return agent.Errorf(agent.CodeInternal, agent.ReasonMaxIterations,
		"%s %q took %d model turns without an answer, the most it may (%s); raise it, or give it less to do", noun, s.Team.ID, n, team.NameOfLimit("max_turns", s.Team.Limits.GetMaxTurns() > 0))
}

// atLimit returns the decision after an error: a final turn without tools, if the error comes from
// a limit and the leader finalizes; otherwise the error.
func (l *leader) atLimit(s *team.State, r *round, err error) (team.Decision, error) {
	limit := false
	switch agent.AsError(err).Reason {
	case agent.ReasonMaxDelegations, agent.ReasonMaxIterations, agent.ReasonBudgetExceeded, agent.ReasonAccountLimit, agent.ReasonRepeatedCall:
		limit = true
	}
	switch {
	case !limit || l.onLimit != Finalize || r.turn.Step.GetName() == finalTurn:
		return team.Decision{}, err
	case l.open != CancelOpen && len(s.Open()) > 0:
		return team.Decision{}, nil // wait: the final turn needs the results
	}
	return modelStep(finalTurn, "a limit is reached: "+agent.AsError(err).Message), nil
}

// call decides on the calls of the turn: all remaining ones if they run in parallel, or the next
// one. A hand-over takes place when all other calls of the turn have ended.
func (l *leader) call(s *team.State, r *round) team.Decision {
	c := &callPlanner{leader: l, state: s, round: r, used: l.delegated(s)}
	var d team.Decision
	var names []string
	t, at := l.firstTransfer(s, r)
	for k := len(r.steps); k < len(r.calls()); k++ {
		call := r.calls()[k]
		if t != nil && k == at && k == len(r.calls())-1 {
			if len(d.Steps) == 0 {
				return handOver(l.withResults(s, r, t, at))
			}
			break // hand over when the calls before it have ended
		}
		step := c.step(call)
		d.Steps = append(d.Steps, step)
		names = append(names, nameOf(step, call))
		if !l.parallel {
			break
		}
	}
	d.Reason = "the model calls " + strings.Join(names, ", ")
	return d
}

// firstTransfer returns the target and index of the first valid hand-over call of a turn; nil if
// there is none.
func (l *leader) firstTransfer(s *team.State, r *round) (*teamv1.Transfer, int) {
	for k, call := range r.calls() {
		if t := l.transfer(s, call); t != nil {
			return t, k
		}
	}
	return nil, 0
}

// handOver returns the decision to hand over.
func handOver(t *teamv1.Transfer) team.Decision {
	return team.Decision{Transfer: t, Reason: "the model hands over to " + t.GetTo()}
}

// nameOf returns the member or tool of a call, for the reason of a decision.
func nameOf(step *teamv1.Step, call *teamv1.ToolCall) string {
	if step.GetMember() != "" {
		return step.GetMember()
	}
	return agent.Quote(call.GetName())
}

// delegated counts the delegations of the run. Refused ones do not count.
func (l *leader) delegated(s *team.State) int {
	n := 0
	for _, st := range s.All() {
		if st.ByMember() && st.Refusal == nil && st.Outcome != teamv1.Outcome_OUTCOME_REJECTED {
			n++
		}
	}
	return n
}

// answered returns the decision after an answer without a call. The answer ends the run unless the
// user has sent a follow-up, or asynchronous work is open that the answer has to wait for.
func (l *leader) answered(s *team.State, r *round) (team.Decision, error) {
	if r.turn.ReceivedBefore < len(s.Received) {
		return l.turn(s, r, "", "the user has said more")
	}
	if l.open != CancelOpen && l.crew != nil {
		if len(s.Open()) > 0 {
			return team.Decision{}, nil // wait
		}
		if len(unreported(s)) > 0 {
			return l.turn(s, r, resultsTurn, "the work that was under way has ended")
		}
	}
	return l.reply(s, r)
}

// reply ends the run with the text of the turn. If it is empty, the model is asked once more, and then
// the run fails, unless it may end without an answer.
func (l *leader) reply(s *team.State, r *round) (team.Decision, error) {
	name := r.turn.Step.GetName()
	switch {
	case strings.TrimSpace(r.turn.Turn.GetText()) != "" || len(r.turn.Turn.GetFiles()) > 0 || !s.MustAnswer():
		return l.formatReply(s, r)
	case name == finalTurn && l.crew == nil:
		return team.Decision{}, l.limitBefore(s)
	case name != prompt.EmptyTurn && name != finalTurn:
		d, err := l.turn(s, r, prompt.EmptyTurn, "the answer is empty: the model is asked once more")
		if len(d.Steps) > 0 && d.Steps[0].GetName() == prompt.EmptyTurn {
			d.Steps[0].Ask = &teamv1.Ask{Question: prompt.WasEmpty}
		}
		return d, err
	case l.crew != nil:
		return team.Decision{}, agent.Errorf(agent.CodeInternal, agent.ReasonNoResponse,
			"team %q: the leader ended the run without an answer; say in its instructions what to answer", s.Team.ID)
	}
	return team.Decision{}, agent.Errorf(agent.CodeInternal, agent.ReasonNoResponse,
		"the model of agent %q ended the run without an answer, also when asked once more; say in its instructions what to answer, or set allow_empty: true", s.Team.ID)
}

// turn asks the model for another turn, within limits.max_turns.
func (l *leader) turn(s *team.State, r *round, name, reason string) (team.Decision, error) {
	if n := modelTurns(s); n >= l.maxTurns {
		return l.atLimit(s, r, l.turnsError(s, n))
	}
	return modelStep(name, reason), nil
}

// modelTurns counts the model turns of the run.
func modelTurns(s *team.State) int {
	n := 0
	for _, st := range s.All() {
		if st.Step.GetKind() == teamv1.Step_KIND_MODEL {
			n++
		}
	}
	return n
}

// modelStep returns the decision to take a model turn.
func modelStep(name, reason string) team.Decision {
	return team.Decision{Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_MODEL, Name: name}}, Reason: reason}
}

// skipsSummary reports whether the replies of the members are the reply of the team: all calls of
// the turn were delegations that succeeded, to members with SkipSummarization. A detached task has
// not replied yet.
func (l *leader) skipsSummary(r *round) bool {
	for _, st := range r.steps {
		m := l.crew.find(st.Step.GetMember())
		if !st.ByMember() || m == nil || !m.SkipSummarization || st.Message == nil || st.Step.GetDetached() || st.Outcome != teamv1.Outcome_OUTCOME_SUCCEEDED {
			return false
		}
	}
	return len(r.steps) > 0
}

func calledBy(steps []*team.StepState) string {
	ids := make([]string, len(steps))
	for i, st := range steps {
		ids[i] = st.Step.GetMember()
	}
	return strings.Join(ids, ", ")
}

// hasTool reports whether there is a tool of that name that does not stand for a member.
func (l *leader) hasTool(s *team.State, name string) bool {
	return slices.ContainsFunc(l.own(s), func(t agent.ToolSpec) bool { return t.Name == name })
}

// toolList returns a text with the names of all tools.
func (l *leader) toolList(s *team.State) string {
	names := make([]string, 0, len(l.tools)+len(s.Tools))
	for _, t := range append(l.tools[:len(l.tools):len(l.tools)], s.Tools...) {
		names = append(names, t.Name)
	}
	if l.crew != nil {
		for _, m := range l.crew.members {
			if !m.Disabled {
				names = append(names, m.tool)
			}
		}
	}
	if len(names) == 0 {
		return "there are no tools: answer yourself"
	}
	return "the tools are " + strings.Join(names, ", ")
}
