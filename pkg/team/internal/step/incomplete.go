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

// cut is a turn that a limit of output tokens has cut.
type cut struct {
	by    agent.Model // the model that answered
	limit int64       // the limit, or the number of tokens that were written; 0 if neither is known
	ours  bool        // the request had the limit
	none  bool        // the request had no limit
}

// incomplete returns the error of a turn that is not whole; nil if it is, or if the agent accepts what
// there is. An accepted turn has no tool calls, because their arguments may lack their end.
func (w *Work) incomplete(c *agent.ModelChunk) error {
	var e *agent.Error
	switch c.Turn.GetEnd() {
	case teamv1.TurnEnd_TURN_END_TRUNCATED:
		if w.by.AcceptTruncated && w.Step.GetKind() == teamv1.Step_KIND_MODEL && strings.TrimSpace(c.Turn.GetText()) != "" {
			c.Turn.ToolCalls, c.Turn.State = nil, nil
			return nil
		}
		e = w.truncated(c)
	case teamv1.TurnEnd_TURN_END_FILTERED:
		e = agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonAnswerFiltered,
			"the content filter of the provider of model %q cut the answer of %q (%s); change the message, or use another model",
			w.Target.answeredBy(c).Name(), w.by.ID, cmp.Or(c.Turn.GetFinishReason(), "no reason given"))
	default:
		return nil
	}
	e.Fresh, e.Spent = true, c.Spent
	if c.Spent == nil {
		e.Spent = &teamv1.Spent{ModelCalls: 1, Estimated: true}
	}
	return e
}

// answeredBy returns the model that made a turn.
func (t *Target) answeredBy(c *agent.ModelChunk) agent.Model {
	if c.By != nil {
		return c.By
	}
	return t.Model
}

// truncated notes what has cut a turn, and returns its error. Some providers count a token less than the
// limit, so only a turn that ended well before it was cut by something else.
func (w *Work) truncated(c *agent.ModelChunk) *agent.Error {
	written := c.Spent.GetOutputTokens()
	w.cut = cut{by: w.Target.answeredBy(c), limit: c.MaxOutput, ours: true, none: c.MaxOutput == 0}
	if w.cut.none || written > 0 && written < c.MaxOutput-c.MaxOutput/8 {
		w.cut.limit, w.cut.ours = written, false
	}
	advice := "this is the provider's own limit, such as the context window: ask for less, or use a model that can write more"
	switch {
	case w.cut.ours && w.cost.hold != nil && w.cut.limit < outputOf(w.cut.by, w.Prompt):
		advice = "this is what the budget left (max_tokens, max_cost): raise it, or ask for less"
	case w.cut.ours:
		advice = "raise max_output_tokens of the model, or ask for less"
	case w.cut.none:
		advice = "this is the provider's own limit: set max_output_tokens of the model, ask for less, or use a model that can write more"
	}
	after := ""
	if w.cut.limit > 0 {
		after = fmt.Sprintf(" after %d output tokens", w.cut.limit)
	}
	return agent.Errorf(agent.CodeInternal, agent.ReasonAnswerTruncated, "the answer of %q was cut%s (model %q); %s", w.by.ID, after, w.cut.by.Name(), advice)
}

// continueTruncated records that a turn that was cut is asked for again: once with twice the limit, if
// the model and the budget allow it, and then with the next fallback. It returns false if neither can
// help, or if err is something else. A request with the higher limit that the provider refuses leaves the
// turn cut.
func (w *Work) continueTruncated(err error) (again bool, _ error) {
	e := agent.AsError(err)
	if w.cut.by == nil || e.Reason != agent.ReasonAnswerTruncated && (e.Retry || !e.Fresh || !ofModel(e)) {
		return false, nil
	}
	retried := &teamv1.Retried{Attempt: w.Attempts, Error: e.Proto(), Fresh: true, NotBefore: timestamppb.New(w.by.Run.Now()), Spent: w.cost.lost}
	switch place, count := w.cut.place(w.Target.Model); {
	case w.MaxOutput == 0 && (w.cut.ours || w.cut.none) && w.cut.higher() > w.cut.limit && w.by.Budget.affords(&w.cost, turnCost(agent.PriceOf(w.Target.Model), w.Reserved.GetInputTokens(), w.cut.higher())):
		retried.MaxOutputTokens = w.cut.higher()
	case place+1 < count && place+1 > w.From:
		retried.FromModel = int32(place + 1) //nolint:gosec // a model has at most 8 fallbacks
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

// higher returns twice the limit that cut the turn, as far as the model allows it; 0 if the limit is not
// known.
func (c *cut) higher() int64 {
	if l, ok := c.by.(agent.OutputLimiter); ok && l.MaxOutput() > 0 {
		return min(2*c.limit, l.MaxOutput())
	}
	return 2 * c.limit
}

// place returns the index of the model that was cut among those that the model of the step has, and their number.
func (c *cut) place(of agent.Model) (index, count int) {
	several, ok := of.(interface {
		Alternatives() [][]string
		Place(one agent.Model) int
	})
	if !ok {
		return 0, 1
	}
	return max(several.Place(c.by), 0), len(several.Alternatives())
}
