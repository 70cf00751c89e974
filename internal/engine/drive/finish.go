package drive

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
)

// finish records the end of the run. err is how the agent failed, nil if it replied. The result is
// an error of the journal.
func (d *drive) finish(ctx context.Context, err error) error {
	ctx = context.WithoutCancel(ctx)
	if jerr := d.tooLate(ctx); jerr != nil {
		return jerr
	}
	d.cancelIfStopped()
	if d.canceled { // the cancel may have arrived together with the end
		d.reply, err = nil, d.canceledBy(err)
	}
	if err == nil && d.reply == nil {
		err = agent.Errorf(agent.CodeInternal, agent.ReasonNoResponse, "agent %q ended without an answer", d.rec.accepted.GetAgent())
	}
	if jerr := d.closeOpen(ctx, err); jerr != nil {
		return jerr
	}
	e := d.ended(err)
	e.Spent = spending.WithTaskCost(d.callee, e.GetSpent(), err, d.rec.events)
	if aerr := d.funds.settleAccount(ctx, e.GetSpent(), agent.Cost{}); aerr != nil {
		return d.rec.journalError(aerr)
	}
	if jerr := d.funds.settleBudgets(ctx, e); jerr != nil {
		return jerr
	}
	if jerr := d.conversation.remember(ctx, e); jerr != nil {
		return jerr
	}
	e.Warnings = slices.Concat(e.GetWarnings(), d.conversation.warnings)
	if jerr := d.detacher.wakeLead(ctx, e); jerr != nil {
		return jerr
	}
	ev := d.rec.event("", &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: e}})
	if jerr := d.rec.claim.Journal.Append(ctx, ev); jerr != nil { // the summary does not need the end
		return d.rec.journalError(jerr)
	}
	return d.rec.commit(ctx)
}

// tooLate records the messages and answers that arrived but that no agent has received, so that
// they appear in the history.
func (d *drive) tooLate(ctx context.Context) error {
	rows, err := d.rec.claim.Journal.Inbound(ctx)
	if err != nil {
		return d.rec.journalError(err)
	}
	for _, in := range rows {
		ev := d.rec.inboundEvent(in, nil)
		if m := in.GetAnswered().GetMessage(); m != nil {
			ev.Kind = &teamv1.Event_Received{Received: &teamv1.Received{Message: m, TooLate: true, Inbound: in.GetN()}}
		} else if r := ev.GetReceived(); r != nil {
			r.TooLate = true
		}
		if err := d.rec.append(ctx, ev); broke(err) {
			return err
		}
	}
	return nil
}

// ended returns the end of the root: the agent's reply, or the failure if err is not nil.
func (d *drive) ended(err error) *teamv1.Ended {
	if err != nil {
		return d.failed(err)
	}
	return d.succeeded()
}

// failed returns the end of a run without a reply.
func (d *drive) failed(err error) *teamv1.Ended {
	d.log.Info("run failed", zap.Error(err))
	e := agent.AsError(err)
	end := &teamv1.Ended{Outcome: outcomeOf(err), Error: e.Proto(), Spent: e.Spent, Receipt: e.Receipt}
	if end.GetSpent() == nil { // the run ended before it added up its own costs
		end.Spent = spending.SpentOn(d.rec.events)
	}
	if end.GetOutcome() == teamv1.Outcome_OUTCOME_CANCELED {
		end.Receipt = d.receipt("", end)
	}
	return end
}

// outcomeOf returns the outcome of a run or step that ended with an error.
func outcomeOf(err error) teamv1.Outcome {
	switch e := agent.AsError(err); {
	case errors.Is(err, agent.ErrCanceled):
		return teamv1.Outcome_OUTCOME_CANCELED
	case e.Reason == agent.ReasonTimeout:
		return teamv1.Outcome_OUTCOME_TIMED_OUT
	case e.Reason == agent.ReasonGuardrailBlocked:
		return teamv1.Outcome_OUTCOME_REJECTED
	}
	return teamv1.Outcome_OUTCOME_FAILED
}

// succeeded returns the end of a run whose agent replied.
func (d *drive) succeeded() *teamv1.Ended {
	r := d.reply
	e := &teamv1.Ended{
		Outcome: r.GetOutcome(), Spent: r.GetSpent(), Evidence: r.GetEvidence(), Warnings: r.GetWarnings(),
		Status: r.GetStatus(),
		Direct: r.GetDirect() && d.rec.accepted.GetMayReplyDirectly(),
	}
	if e.Outcome == teamv1.Outcome_OUTCOME_UNSPECIFIED {
		e.Outcome = teamv1.Outcome_OUTCOME_SUCCEEDED
	}
	switch {
	case r.GetRef() > 0:
		e.Result = &teamv1.Ended_ReplyRef{ReplyRef: r.GetRef()}
	case r.GetTransfer() != nil:
		e.Result = &teamv1.Ended_Transfer{Transfer: r.GetTransfer()}
	default:
		e.Result = &teamv1.Ended_Reply{Reply: d.rec.run.Completed("", r.GetMessage())}
	}
	return e
}
