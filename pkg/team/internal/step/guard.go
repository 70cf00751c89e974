package step

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/guards"
)

// guardGiven passes what a member is given through the delegation middlewares, before the first
// attempt.
func guardGiven(next Attempt) Attempt {
	return func(ctx context.Context, w *Work) Result {
		list := w.by.Guards.Delegation
		if !agent.IsDelegation(w.Step.GetKind()) || len(list) == 0 || w.Attempts > 0 {
			return next(ctx, w)
		}
		g := w.passage(teamv1.Checked_STAGE_DELEGATION)
		g.Guards, g.Looked, g.Message, g.Seq, g.History = list, w.Checks.Given, w.Input, w.Checks.Input, w.History
		blocked, err := w.Checks.Blocked, error(nil)
		if blocked == nil {
			blocked, err = g.Screen(ctx)
		}
		switch {
		case err != nil && !errors.Is(err, ErrStopped) && (ctx.Err() != nil || errors.Is(err, agent.ErrCanceled)):
			return Result{Err: err}
		case err != nil:
			return stopped(err)
		case blocked != nil:
			return Result{Err: blocked, rejected: true}
		}
		w.Input, w.Checks.Input, w.History = g.Message, g.Seq, g.History
		return next(ctx, w)
	}
}

// guardResult passes the answer of a member through the result middlewares, before anything else
// reads it.
func guardResult(next Attempt) Attempt {
	return func(ctx context.Context, w *Work) Result {
		res := next(ctx, w)
		if res.Err != nil || res.Reply.GetMessage() == nil || w.Step.GetDetached() || w.Target.Rounds || !agent.ByMember(w.Step.GetKind()) || len(w.by.Guards.Result) == 0 {
			return res
		}
		return w.checkResult(ctx, res.Reply)
	}
}

func (w *Work) checkResult(ctx context.Context, answer *teamv1.Reply) Result {
	g := w.passage(teamv1.Checked_STAGE_RESULT)
	g.Guards, g.Looked, g.Message = w.by.Guards.Result, w.Checks.Results, answer.GetMessage()
	if w.Checks.Answer != nil { // continue with the answer on record, even if a new attempt answered something else
		g.Message, g.Seq = w.Checks.Answer, w.Checks.Answered
	}
	blocked, err := w.Checks.Blocked, error(nil)
	if blocked == nil {
		blocked, err = g.Screen(ctx)
	}
	switch {
	case err != nil:
		return Result{Err: err}
	case blocked != nil:
		e := *blocked
		e.Spent = answer.GetSpent()
		return Result{Err: &e}
	}
	reply := &teamv1.Reply{
		Result: &teamv1.Reply_Message{Message: g.Message}, Ref: g.Seq, Outcome: answer.GetOutcome(), Spent: answer.GetSpent(),
		Evidence: answer.GetEvidence(), Warnings: slices.Concat(answer.GetWarnings(), w.Checks.Warnings),
	}
	if !sameParts(g.Message, answer.GetMessage()) {
		reply.Outcome = teamv1.Outcome_OUTCOME_UNSPECIFIED
	}
	return Result{Reply: reply}
}

func sameParts(a, b *a2av1.Message) bool {
	return proto.Equal(&a2av1.Message{Parts: a.GetParts()}, &a2av1.Message{Parts: b.GetParts()})
}

// passage returns the passage of a message to or from a member.
func (w *Work) passage(stage teamv1.Checked_Stage) *guards.Passage {
	return &guards.Passage{Owner: w.by.Owner, Stage: stage, Scope: w.Scope, Member: w.Step.GetMember(), Emit: func(c *teamv1.Checked) (int64, error) {
		ev := w.event(&teamv1.Event{Kind: &teamv1.Event_Checked{Checked: c}})
		if err := w.emit(ev); err != nil {
			return 0, err
		}
		w.Checks.warn(c)
		return ev.GetSeq(), nil
	}}
}

// Checks holds what the delegation and result middlewares of the team have recorded for a step.
type Checks struct {
	Given    int                   // number of delegation middlewares that have checked
	Message  *a2av1.Message        // what the member is given; nil if it is unchanged
	Input    int64                 // sequence number of the event that holds Message
	History  *teamv1.Checked_Shown // history that the member is shown; nil if it is unchanged
	Results  int                   // number of result middlewares that have checked
	Answer   *a2av1.Message        // the answer, with the changes of those middlewares
	Answered int64                 // sequence number of the event that holds Answer
	Blocked  *agent.Error          // why a middleware blocked the message; nil if none did
	Warnings []string              // errors of middlewares that did not block
}

// Apply folds what a middleware of the team did. It returns false if the middleware belongs to the
// member itself.
func (k *Checks) Apply(seq int64, c *teamv1.Checked) bool {
	switch c.GetStage() {
	case teamv1.Checked_STAGE_DELEGATION:
		k.Given++
		if c.GetMessage() != nil {
			k.Message, k.Input = c.GetMessage(), seq
		}
		if c.GetHistory() != nil {
			k.History = c.GetHistory()
		}
	case teamv1.Checked_STAGE_RESULT:
		k.Results++
		if c.GetMessage() != nil {
			k.Answer, k.Answered = c.GetMessage(), seq
		}
	case teamv1.Checked_STAGE_INPUT, teamv1.Checked_STAGE_OUTPUT, teamv1.Checked_STAGE_UNSPECIFIED:
		return false
	}
	if c.GetBlocked() {
		k.Blocked = agent.FromProto(c.GetError())
	}
	k.warn(c)
	return true
}

func (k *Checks) warn(c *teamv1.Checked) {
	if c.GetError() != nil && !c.GetBlocked() {
		k.Warnings = append(k.Warnings, c.GetError().GetMessage())
	}
}

// given returns a reference to what a member is given; nil if it is what was decided.
func (k *Checks) given() *teamv1.Input {
	if k.Input == 0 {
		return nil
	}
	return &teamv1.Input{Ref: k.Input}
}
