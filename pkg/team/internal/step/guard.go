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

// guardGiven has the delegation middlewares look at what a member is given, before its
// first attempt.
func guardGiven(next Attempt) Attempt {
	return func(ctx context.Context, w *Work) Result {
		list := w.by.Guards.Delegation
		if !agent.IsDelegation(w.Step.GetKind()) || len(list) == 0 || w.Attempts > 0 {
			return next(ctx, w)
		}
		g := w.passage(teamv1.Checked_STAGE_DELEGATION)
		g.Guards, g.Looked, g.Message, g.Seq, g.History = list, w.Checks.Given, w.Input, w.Checks.Input, w.History
		barred, err := w.Checks.Barred, error(nil)
		if barred == nil {
			barred, err = g.Screen(ctx)
		}
		switch {
		case err != nil && !errors.Is(err, ErrStopped) && (ctx.Err() != nil || errors.Is(err, agent.ErrCanceled)):
			return Result{Err: err}
		case err != nil:
			return stopped(err)
		case barred != nil:
			return Result{Err: barred, rejected: true}
		}
		w.Input, w.Checks.Input, w.History = g.Message, g.Seq, g.History
		return next(ctx, w)
	}
}

// guardResult has the result middlewares look at what a member has answered, before
// anybody reads it.
func guardResult(next Attempt) Attempt {
	return func(ctx context.Context, w *Work) Result {
		res := next(ctx, w)
		if res.Err != nil || res.Reply.GetMessage() == nil || w.Step.GetDetached() || !agent.IsDelegation(w.Step.GetKind()) || len(w.by.Guards.Result) == 0 {
			return res
		}
		return w.checkResult(ctx, res.Reply)
	}
}

func (w *Work) checkResult(ctx context.Context, said *teamv1.Reply) Result {
	g := w.passage(teamv1.Checked_STAGE_RESULT)
	g.Guards, g.Looked, g.Message = w.by.Guards.Result, w.Checks.Results, said.GetMessage()
	if w.Checks.Answer != nil { // this is what was looked at, whatever an attempt after a crash has answered
		g.Message, g.Seq = w.Checks.Answer, w.Checks.Answered
	}
	barred, err := w.Checks.Barred, error(nil)
	if barred == nil {
		barred, err = g.Screen(ctx)
	}
	switch {
	case err != nil:
		return Result{Err: err}
	case barred != nil:
		e := *barred
		e.Spent = said.GetSpent()
		return Result{Err: &e}
	}
	reply := &teamv1.Reply{
		Result: &teamv1.Reply_Message{Message: g.Message}, Ref: g.Seq, Outcome: said.GetOutcome(), Spent: said.GetSpent(),
		Evidence: said.GetEvidence(), Warnings: slices.Concat(said.GetWarnings(), w.Checks.Warnings),
	}
	if !sameParts(g.Message, said.GetMessage()) {
		reply.Outcome = teamv1.Outcome_OUTCOME_UNSPECIFIED
	}
	return Result{Reply: reply}
}

func sameParts(a, b *a2av1.Message) bool {
	return proto.Equal(&a2av1.Message{Parts: a.GetParts()}, &a2av1.Message{Parts: b.GetParts()})
}

// passage is the passage of a message to or from a member.
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

// Checks is what the middlewares of a team have said of what the member of a step is given
// and of what it answers.
type Checks struct {
	Given    int                   // delegation middlewares that have looked
	Message  *a2av1.Message        // what it is given, nil as decided
	Input    int64                 // sequence of the event that holds it
	History  *teamv1.Checked_Shown // what it is shown besides, nil as it was
	Results  int                   // result middlewares that have looked
	Answer   *a2av1.Message        // what they have looked at, as it is now
	Answered int64                 // sequence of the event that holds it
	Barred   *agent.Error          // why the message goes no further
	Warnings []string
}

// Apply folds what a middleware of the team did. It reports false for one of the member's
// own.
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
		k.Barred = agent.FromProto(c.GetError())
	}
	k.warn(c)
	return true
}

func (k *Checks) warn(c *teamv1.Checked) {
	if c.GetError() != nil && !c.GetBlocked() {
		k.Warnings = append(k.Warnings, c.GetError().GetMessage())
	}
}

// given names what a member is given where it is not what was decided.
func (k *Checks) given() *teamv1.Input {
	if k.Input == 0 {
		return nil
	}
	return &teamv1.Input{Ref: k.Input}
}
