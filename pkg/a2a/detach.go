package a2a

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"go.uber.org/zap"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

var _ agent.Detacher = (*drive)(nil)

// Detach begins a task of the run's owner in its conversation (C-09). It
// implements agent.Detacher.
func (d *drive) Detach(ctx context.Context, s *teamv1.Spawned) error {
	acc := d.successor(s.GetTaskId(), s.GetAgent(), s.GetInput().GetParts())
	acc.Limits = agent.PartLimits(s.GetBudget())
	acc.Collaboration = d.accepted.GetCollaboration()
	acc.Detached = &teamv1.Detached{Parent: d.claim.Root, Member: s.GetMember(), Lead: s.GetLead(), Team: s.GetTeam()}
	if err := d.beginTask(ctx, acc); err != nil {
		return storeError(acc.GetTaskId(), err)
	}
	return nil
}

// Detached implements agent.Detacher.
func (d *drive) Detached(ctx context.Context, taskID string) (*teamv1.Ended, error) {
	f, err := d.Handler.fold(ctx, Key{d.claim.Owner, taskID}, "")
	if err != nil || f.ended == nil {
		return nil, err
	}
	return &teamv1.Ended{
		Outcome: f.ended.GetOutcome(), Error: f.ended.GetError(), Spent: f.ended.GetSpent(), Result: &teamv1.Ended_Reply{Reply: f.answer},
	}, nil
}

// wakeLead has the agent that detached the task hear of its end: a task of its
// own, in the same conversation. It is begun before the end is on record, so that
// a crash between the two loses nothing; its id is that of the task that ended, so
// that there is one (S-65).
func (d *drive) wakeLead(ctx context.Context, e *teamv1.Ended) error {
	origin := d.accepted.GetDetached()
	if origin.GetLead() == "" || d.Handler == nil {
		return nil
	}
	acc := d.successor(d.run.ID("", "wake", 1), origin.GetLead(), d.news(e))
	err := d.beginTask(ctx, acc)
	var known *agent.Error
	if errors.As(err, &known) && known.Reason == agent.ReasonAgentNotFound {
		d.Log.Warn("nobody to tell of the end of a detached task", zap.String("task", d.claim.Root), zap.Error(err))
		return nil
	}
	if err != nil {
		return d.journalError(err)
	}
	return nil
}

// news is what the lead is told; a long result by reference (S-64).
func (d *drive) news(e *teamv1.Ended) []*a2av1.Part {
	outcome := strings.ToLower(strings.TrimPrefix(e.GetOutcome().String(), "OUTCOME_"))
	text := agent.Text(e.GetReply())
	switch {
	case e.GetError() != nil:
		text = e.GetError().GetReason() + ": " + e.GetError().GetMessage()
	case e.GetReplyRef() > 0:
		text = agent.Text(d.textAt(e.GetReplyRef()))
	}
	head := fmt.Sprintf("The task %s that %s was given has ended: %s.", d.claim.Root, d.accepted.GetDetached().GetMember(), outcome)
	return agent.ResultParts(head, text, d.claim.Root)
}

// textAt is the message that an event on record holds.
func (d *drive) textAt(seq int64) *a2av1.Message {
	for _, ev := range d.recorded {
		if ev.GetSeq() == seq {
			return agent.MessageOf(d.claim.Root, ev)
		}
	}
	return nil
}

// successor is a task that follows from this one: of its owner and in its
// conversation, one level deeper, so that tasks that begin each other come to an
// end (R-000-36).
func (d *drive) successor(id, agentID string, parts []*a2av1.Part) *teamv1.Accepted {
	acc := d.accepted
	return &teamv1.Accepted{
		TaskId: id, Agent: agentID, Owner: acc.GetOwner(), Seed: rand.Int64(), Depth: acc.GetDepth() + 1, Trace: acc.GetTrace(), //nolint:gosec // jitter, not a secret
		Message: &a2av1.Message{
			MessageId: id, ContextId: acc.GetMessage().GetContextId(), Role: a2av1.Role_ROLE_USER, Parts: parts,
			ReferenceTaskIds: []string{d.claim.Root},
		},
	}
}

// beginTask puts a task that follows from this one on record; again with the same id
// is the same task.
func (d *drive) beginTask(ctx context.Context, acc *teamv1.Accepted) error {
	h := d.Handler
	a, err := h.Find(ctx, acc.GetAgent())
	if err != nil {
		return err
	}
	acc.Conversation = h.conversation(ctx, a, Thread{acc.GetOwner(), acc.GetMessage().GetContextId()}, false)
	if acc.Pins, err = h.pins(ctx, acc.GetAgent()); err != nil {
		return err
	}
	if err := h.pinTeam(ctx, acc); err != nil {
		return err
	}
	digest, err := digestOf(acc.GetAgent(), acc.GetMessage())
	if err != nil {
		return err
	}
	_, _, err = h.c.Store.Create(ctx, New{Owner: acc.GetOwner(), Accepted: acc, MessageID: acc.GetTaskId(), Digest: digest})
	h.c.Wake(acc.GetTaskId())                     // also after an error: it may be on record
	if err != nil && !errors.Is(err, ErrReused) { // with other words, when the end came twice
		return fmt.Errorf("begin task %s: %w", acc.GetTaskId(), err)
	}
	return nil
}
