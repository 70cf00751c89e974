package step

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/verdict"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// finish records how a step ended, or that it waits.
func (w *Work) finish(res Result) error {
	switch {
	case errors.Is(res.Err, ErrStopped):
		return ErrStopped
	case res.fatal:
		return res.Err
	case res.rejected:
		return w.end(EndedWith(res.Err, teamv1.Outcome_OUTCOME_REJECTED))
	case res.Err != nil:
		return w.fail(res.Err)
	case res.Reply != nil:
		return w.end(w.by.endOf(w.Step, w.Scope, res.Reply))
	case w.Attempts == 0: // not started because the run is paused: there is nothing to record
		return nil
	}
	return w.emit(w.event(&teamv1.Event{Kind: &teamv1.Event_Waiting{Waiting: &teamv1.Waiting{Questions: w.Asked.IDs(), Paused: res.paused}}}))
}

// fail records that a step did not succeed. It records nothing if the run continues elsewhere.
func (w *Work) fail(err error) error {
	switch {
	case stopsRecording(context.Cause(w.run)):
		return ErrStopped
	case w.run.Err() == nil && errors.Is(err, errTimeout):
		if err := w.emit(w.event(&teamv1.Event{Kind: &teamv1.Event_Expired{Expired: &teamv1.Expired{Limit: w.Limit}}})); err != nil {
			return err
		}
		late := agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "member %q did not finish in time (%s); raise it, or give it less to do", w.Step.GetMember(), w.Target.limit(w.Limit, w.Step))
		late.Spent = agent.AsError(err).Spent
		return w.end(EndedWith(late, teamv1.Outcome_OUTCOME_TIMED_OUT))
	}
	outcome := teamv1.Outcome_OUTCOME_FAILED
	e := agent.AsError(err)
	switch {
	case e.Reason == agent.ReasonHalted: // a failure of the member, although it was canceled
	case errors.Is(err, agent.ErrCanceled), e.Reason == agent.ReasonCanceled && w.Target.Leaf: // a canceled member of a team is a failure of the team
		outcome = teamv1.Outcome_OUTCOME_CANCELED
	case e.Reason == agent.ReasonTimeout:
		outcome = teamv1.Outcome_OUTCOME_TIMED_OUT
	case e.Reason == agent.ReasonGuardrailBlocked:
		outcome = teamv1.Outcome_OUTCOME_REJECTED
	}
	return w.end(EndedWith(e, outcome))
}

// limit returns the name of the limit on a step's time, as people find it in the configuration
// file, and its value.
func (t *Target) limit(name string, step *teamv1.Step) string {
	if name == agent.LimitMemberTimeout && step.GetTimeout() != nil {
		name = "timeout of the step"
	}
	switch {
	case t.Timeout <= 0:
		return name
	case t.DefaultTimeout:
		return fmt.Sprintf("%s: %s, the default", name, t.Timeout)
	}
	return fmt.Sprintf("%s: %s", name, t.Timeout)
}

// EndedWith returns the end of a step that did not succeed.
func EndedWith(err error, outcome teamv1.Outcome) *teamv1.Ended {
	e := agent.AsError(err)
	return &teamv1.Ended{Outcome: outcome, Error: e.Proto(), Spent: e.Spent, Receipt: e.Receipt}
}

// endOf returns the end of a step that replied.
func (r *Runner) endOf(step *teamv1.Step, scope string, reply *teamv1.Reply) *teamv1.Ended {
	end := &endWithReply{}
	e := &end.ended
	e.Outcome, e.Spent, e.Evidence, e.Warnings = reply.GetOutcome(), reply.GetSpent(), reply.GetEvidence(), reply.GetWarnings()
	switch k := reply.GetResult().(type) {
	case *teamv1.Reply_Message:
		if reply.GetRef() > 0 {
			e.Result = &teamv1.Ended_ReplyRef{ReplyRef: reply.GetRef()}
		} else {
			end.reply.Reply = r.Run.Completed(scope, k.Message)
			e.Result = &end.reply
		}
		if e.Outcome == teamv1.Outcome_OUTCOME_UNSPECIFIED && agent.Text(k.Message) == "" && prompt.OnlyText(k.Message) {
			e.Outcome = teamv1.Outcome_OUTCOME_EMPTY
		}
	case *teamv1.Reply_Turn:
		e.Result = &teamv1.Ended_Turn{Turn: k.Turn}
	case *teamv1.Reply_Tool:
		e.Result = &teamv1.Ended_Tool{Tool: k.Tool}
	case *teamv1.Reply_Transfer:
		e.Result = &teamv1.Ended_Transfer{Transfer: k.Transfer}
	}
	if step.GetKind() == teamv1.Step_KIND_JUDGE {
		e.Verdict = verdict.Of(reply)
	}
	if e.Outcome == teamv1.Outcome_OUTCOME_UNSPECIFIED {
		e.Outcome = teamv1.Outcome_OUTCOME_SUCCEEDED
	}
	return e
}

// endWithReply is an Ended with a message as reply, the most common case, in a single allocation.
type endWithReply struct {
	ended teamv1.Ended
	reply teamv1.Ended_Reply
}

// end records the end of a step.
func (w *Work) end(e *teamv1.Ended) error {
	w.logFailure(e)
	if e.GetError() != nil && w.partial != "" {
		e.Result = &teamv1.Ended_Turn{Turn: &teamv1.Turn{Text: w.partial}}
	}
	ended := &endedEvent{}
	ended.kind.Ended, ended.event.Kind = w.addCosts(e), &ended.kind
	return w.emit(w.event(&ended.event))
}

// endedEvent is an Ended event in a single allocation.
type endedEvent struct {
	event teamv1.Event
	kind  teamv1.Event_Ended
}

// logFailure logs why a member did not succeed. The scheduler may handle the failure, so it may not
// show in the result of the run.
func (w *Work) logFailure(e *teamv1.Ended) {
	if !agent.IsDelegation(w.Step.GetKind()) || e.GetError() == nil || e.GetOutcome() == teamv1.Outcome_OUTCOME_SKIPPED {
		return
	}
	w.by.Log.Warn("member did not succeed", w.task(), zap.String("team", w.by.ID), zap.String("member", w.Step.GetMember()),
		zap.String("scope", w.Scope), zap.String("outcome", e.GetOutcome().String()),
		zap.String("reason", e.GetError().GetReason()), zap.String("message", e.GetError().GetMessage()))
}
