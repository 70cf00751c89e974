package leader

import (
	"fmt"
	"slices"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// callPlanner turns the tool calls of one turn into steps.
type callPlanner struct {
	*leader
	state   *team.State
	round   *round
	used    int            // number of delegations of the run so far
	planned []*teamv1.Step // steps of this decision so far
}

// step returns the step of a call. A call that cannot run becomes a refused step: the model gets
// the reason as the answer to its call.
func (c *callPlanner) step(call *teamv1.ToolCall) *teamv1.Step {
	step := &teamv1.Step{Kind: teamv1.Step_KIND_TOOL, Name: call.GetName(), CallId: call.GetId()}
	switch {
	case c.crew.delegates(call, c.own(c.state)):
		c.delegate(step, call)
	case call.GetName() == team.TransferTool && len(c.state.Transfers) > 0:
		c.transfer(step, call)
	case call.GetName() == prompt.ReadTool && hasCuttable(c.state):
	case !c.hasTool(c.state, call.GetName()):
		refuse(step, agent.ReasonInvalidRequest, fmt.Sprintf("there is no tool %q; %s", agent.Quote(call.GetName()),
			strings.Join(append([]string{c.toolList(c.state)}, c.state.MissingTools...), "; ")))
	}
	c.planned = append(c.planned, step)
	return step
}

// transfer fills in the step of a hand-over call in a turn that has other calls too. The first
// hand-over takes place when the other calls have ended; further ones are refused.
func (c *callPlanner) transfer(step *teamv1.Step, call *teamv1.ToolCall) {
	t, at := c.firstTransfer(c.state, c.round)
	switch _, err := readTransfer(call.GetArguments(), c.state.Transfers); {
	case err != nil:
		refuse(step, agent.ReasonInvalidRequest, err.Error())
	case c.round.calls()[at] == call:
		step.Refusal = &teamv1.Refusal{Outcome: teamv1.Outcome_OUTCOME_SKIPPED, Error: &teamv1.Error{
			Message: fmt.Sprintf("the run is handed over to %q when the other calls of this turn have ended", t.GetTo()),
		}}
	default:
		refuse(step, agent.ReasonInvalidRequest, fmt.Sprintf("this turn hands over to %q already; hand over to one agent at a time", t.GetTo()))
	}
}

// delegate fills in the step of a call that gives a task to a member.
func (c *callPlanner) delegate(step *teamv1.Step, call *teamv1.ToolCall) {
	d, err := c.crew.read(call)
	if d != nil && d.member != nil {
		step.Kind, step.Member, step.Name = teamv1.Step_KIND_DELEGATE, team.MemberID(d.member.Member), ""
	}
	if err != nil {
		step.Refusal = &teamv1.Refusal{Outcome: teamv1.Outcome_OUTCOME_REJECTED, Error: err.Proto()}
		return
	}
	step.Input = &teamv1.Input{Message: d.message()}
	step.Async = c.crew.isAsync(d.member)
	step.Detached = step.GetAsync() && c.open == DetachOpen
	if duplicate := c.duplicateTask(step); duplicate != "" {
		step.Refusal = &teamv1.Refusal{Outcome: teamv1.Outcome_OUTCOME_SKIPPED, Error: &teamv1.Error{Message: duplicate}}
		return
	}
	if !step.GetAsync() && d.member.History != team.HistoryIsolated {
		step.Input.Earlier = c.earlierResults()
	}
	switch {
	case c.repeats(step): // the loop will refuse it
	case c.used >= c.maxDelegated:
		then := "raise it, or have it answer with what there is (on_limit)"
		if c.onLimit == Finalize {
			then = "answer with what there is"
		}
		refuse(step, agent.ReasonMaxDelegations, fmt.Sprintf("team %q made %d delegations, the most it may (%s); %s", c.state.Team.ID, c.maxDelegated,
			team.NameOfLimit("max_delegations", c.state.Team.Limits.GetMaxDelegations() > 0), then))
	default:
		c.used++
	}
}

// repeats reports whether the member was given the same text before. Such a step will be refused
// with CYCLE_DETECTED, so it does not count as a delegation.
func (c *callPlanner) repeats(step *teamv1.Step) bool {
	text := prompt.HandedOver(step.GetInput().GetMessage())
	same := func(st *teamv1.Step, given *a2av1.Message) bool {
		return st.GetKind() == teamv1.Step_KIND_DELEGATE && st.GetRefusal() == nil && st.GetMember() == step.GetMember() && prompt.HandedOver(given) == text
	}
	return slices.ContainsFunc(c.state.Steps, func(st *team.StepState) bool { return same(st.Step, st.Given) }) ||
		slices.ContainsFunc(c.planned, func(p *teamv1.Step) bool { return same(p, p.GetInput().GetMessage()) })
}

// refuse makes a step one that is refused for a reason.
func refuse(step *teamv1.Step, reason, message string) {
	code := agent.CodeInvalidArgument
	if reason == agent.ReasonMaxDelegations { // it ends the run
		code = agent.CodeInternal
	}
	step.Refusal = &teamv1.Refusal{Outcome: teamv1.Outcome_OUTCOME_REJECTED, Error: agent.Errorf(code, reason, "%s", message).Proto()}
}

// earlierResults returns the EndSeq of the delegations that ended earlier in the same turn. A
// member that works after them is given their results.
func (c *callPlanner) earlierResults() []int64 {
	var seqs []int64
	for _, st := range c.round.steps {
		if st.ByMember() && st.Done && st.Refusal == nil && !st.Step.GetDetached() {
			seqs = append(seqs, st.EndSeq)
		}
	}
	return seqs
}

// duplicateTask returns an answer that names the task, if an asynchronous member was given the same
// task before and may still work on it; empty if not. The end of a detached task is not visible
// here.
func (c *callPlanner) duplicateTask(step *teamv1.Step) string {
	if !step.GetAsync() {
		return ""
	}
	text := prompt.HandedOver(step.GetInput().GetMessage())
	same := func(st *teamv1.Step, given *a2av1.Message) bool {
		return st.GetAsync() && st.GetRefusal() == nil && st.GetMember() == step.GetMember() && prompt.HandedOver(given) == text
	}
	for _, st := range c.state.Steps {
		switch {
		case st.Refusal != nil || !same(st.Step, st.Given):
		case !st.Done:
			return "This task is under way already, as " + c.state.TaskID(st) + "."
		case st.Step.GetDetached() && st.Failure() == nil:
			return "This task was begun already, as " + c.state.TaskID(st) + ". Call " + checkTool + " to see how it stands."
		}
	}
	for i, p := range c.planned {
		if same(p, p.GetInput().GetMessage()) {
			return "This task is under way already, as " + c.state.NextTaskID(i, p.GetDetached()) + "."
		}
	}
	return ""
}
