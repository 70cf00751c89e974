package a2a

import (
	"context"
	"errors"
	"fmt"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Begin puts a task on record that follows from a run: one that the run detaches, or
// one that tells of its end. acc says all of it but its pins and its conversation,
// which are added to it; its owner is not asked. A task id that is known begins nothing,
// also with another message. Errors: AGENT_NOT_FOUND, else the store's.
func (h *Handler) Begin(ctx context.Context, acc *teamv1.Accepted) error {
	a, err := h.Find(ctx, acc.GetAgent())
	if err != nil {
		return err
	}
	acc.Conversation = conversation(ctx, h.c.Conversations, a, Thread{acc.GetOwner(), acc.GetMessage().GetContextId()}, false)
	if acc.Pins, err = h.c.pins(ctx, acc.GetAgent()); err != nil {
		return err
	}
	if err := h.c.pinTeam(ctx, acc); err != nil {
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

// Outcome returns how a root task of an owner ended, with its reply as a message; nil
// while it has not. Errors: TASK_NOT_FOUND, the store's.
func (h *Handler) Outcome(ctx context.Context, k Key) (*teamv1.Ended, error) {
	f, err := h.journals.fold(ctx, k, "")
	if err != nil || f.Ended() == nil {
		return nil, err
	}
	return &teamv1.Ended{
		Outcome: f.Ended().GetOutcome(), Error: f.Ended().GetError(), Spent: f.Ended().GetSpent(), Result: &teamv1.Ended_Reply{Reply: f.Answer()},
	}, nil
}
