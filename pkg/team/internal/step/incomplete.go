package step

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// incomplete returns the error of a turn that is not whole; nil if it is, or if the agent accepts what
// there is. An accepted turn has no tool calls, because their arguments may lack their end.
func (w *Work) incomplete(t *teamv1.Turn, spent *teamv1.Spent) error {
	var e *agent.Error
	switch t.GetEnd() {
	case teamv1.TurnEnd_TURN_END_TRUNCATED:
		if w.by.AcceptTruncated && w.Step.GetKind() == teamv1.Step_KIND_MODEL && strings.TrimSpace(t.GetText()) != "" {
			t.ToolCalls, t.State = nil, nil
			return nil
		}
		e = w.truncated(spent.GetOutputTokens())
	case teamv1.TurnEnd_TURN_END_FILTERED:
		e = agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonAnswerFiltered,
			"the content filter of the provider of model %q cut the answer of %q (%s); change the message, or use another model",
			w.Target.Model.Name(), w.by.ID, cmp.Or(t.GetFinishReason(), "no reason given"))
	default:
		return nil
	}
	e.Fresh, e.Spent = true, spent
	if spent == nil {
		e.Spent = &teamv1.Spent{ModelCalls: 1, Estimated: true}
	}
	return e
}

// truncated returns the error of a turn that was cut after written tokens; 0 means that their number
// is not known.
func (w *Work) truncated(written int64) *agent.Error {
	limit, ours := w.outputLimit(written)
	advice := "this is the provider's own limit, such as the context window: ask for less, or use a model that can write more"
	switch {
	case ours && w.cost.hold != nil && limit < outputOf(w.Target.Model, w.Prompt):
		advice = "this is what the budget left (max_tokens, max_cost): raise it, or ask for less"
	case ours:
		advice = "raise max_output_tokens of the model, or ask for less"
	}
	after := ""
	if limit > 0 {
		after = fmt.Sprintf(" after %d output tokens", limit)
	}
	return agent.Errorf(agent.CodeInternal, agent.ReasonAnswerTruncated, "the answer of %q was cut%s (model %q); %s", w.by.ID, after, w.Target.Model.Name(), advice)
}

// outputLimit returns the limit of output tokens that cut a turn of which written tokens are known; 0
// if it is not known. ours says that the request had the limit. Some providers count a token less than
// the limit, so only a turn that ended well before it was cut by something else.
func (w *Work) outputLimit(written int64) (limit int64, ours bool) {
	limit = cmp.Or(w.cost.maxOutput, w.MaxOutput, w.Prompt.MaxOutput)
	if own := w.ownLimit(); own > 0 && (limit == 0 || own < limit) {
		limit = own
	}
	if limit == 0 || written > 0 && written < limit-limit/8 {
		return written, false
	}
	return limit, true
}

// ownLimit returns the highest limit that requests to the model may have, of several the one that is
// asked first; 0 if it is not known.
func (w *Work) ownLimit() int64 {
	m := w.Target.Model
	if a, ok := m.(interface{ After(lost int) agent.Model }); ok {
		m = a.After(w.Lost)
	}
	if l, ok := m.(agent.OutputLimiter); ok {
		return l.MaxOutput()
	}
	return 0
}

// continueTruncated records that a turn that was cut is asked for again: once with twice the limit, if
// the model and the budget allow it, and then with the next fallback. It returns false if neither can
// help, or if err is something else. A request with the higher limit that the provider refuses leaves the
// turn cut.
func (w *Work) continueTruncated(err error) (again bool, _ error) {
	e := agent.AsError(err)
	if e.Reason != agent.ReasonAnswerTruncated && (w.Cut == nil || e.Retry || !e.Fresh || !ofModel(e)) {
		return false, nil
	}
	retried := &teamv1.Retried{Attempt: w.Attempts, Error: e.Proto(), Fresh: true, NotBefore: timestamppb.New(w.by.Run.Now()), Spent: w.cost.lost}
	switch limit, ours := w.outputLimit(e.Spent.GetOutputTokens()); {
	case w.MaxOutput == 0 && (ours || w.noLimit()) && w.higher(limit) > limit && w.affords(w.higher(limit)):
		retried.MaxOutputTokens = w.higher(limit)
	case w.Lost+1 < alternatives(w.Target.Model):
		retried.NextModel = true
	default:
		return false, nil
	}
	return true, w.repeat(retried)
}

// endOfTurn returns the error that the step of a model ends with after a failed attempt. If an earlier
// turn was cut and what came of asking again is no better, it is that of the cut turn.
func (w *Work) endOfTurn(ctx context.Context, err error) error {
	if e := agent.AsError(err); w.Cut != nil && ofModel(e) {
		cut := agent.FromProto(w.Cut)
		cut.Fresh, cut.Spent, cut.Err = e.Fresh, e.Spent, e
		err = cut
	}
	return w.endOfAttempt(ctx, err)
}

// ofModel reports whether an error is that of a model's endpoint.
func ofModel(e *agent.Error) bool {
	return e.Reason == agent.ReasonUnavailable || e.Reason == agent.ReasonContextTooLong
}

// noLimit reports whether requests have no limit, so that the provider's default cut the turn.
func (w *Work) noLimit() bool {
	return cmp.Or(w.cost.maxOutput, w.MaxOutput, w.Prompt.MaxOutput, w.ownLimit()) == 0
}

// higher returns twice a limit, as far as the model allows it.
func (w *Work) higher(limit int64) int64 {
	if own := w.ownLimit(); own > 0 {
		return min(2*limit, own)
	}
	return 2 * limit
}

// affords reports whether the budget has room for a turn like the last one with up to out output tokens.
func (w *Work) affords(out int64) bool {
	if !w.by.Budget.Limited() {
		return true
	}
	need := turnCost(agent.PriceOf(w.Target.Model), w.Reserved.GetInputTokens(), out)
	left, held := w.by.Budget.budget.Left(), w.cost.hold.Reserved()
	return (left.Tokens == agent.Unlimited || left.Tokens+held.Tokens-w.cost.booked.Tokens >= need.Tokens) &&
		(left.Micros == agent.Unlimited || left.Micros+held.Micros-w.cost.booked.Micros >= need.Micros)
}

// alternatives returns the number of models that a model with fallbacks has, 1 for others.
func alternatives(m agent.Model) int {
	if a, ok := m.(interface{ Alternatives() [][]string }); ok {
		return len(a.Alternatives())
	}
	return 1
}
