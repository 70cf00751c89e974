package a2a

import (
	"context"
	"errors"
	"fmt"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Begin creates a task that results from a run: a detached task, or the task that reports the end of a detached task
// to the agent that started it. On entry acc has the pins of the run that begins the task; Begin replaces them by the
// current ones and adds the conversation. If the id of the agent belongs to another account now, Begin returns
// AGENT_NOT_FOUND; also if its revision differs, unless the account of the owner may use it. No other permission is
// checked.
// Begin is idempotent: if there is a task with this id, it does nothing, even if the message differs. Errors:
// AGENT_NOT_FOUND, and errors of the store.
func (h *Handler) Begin(ctx context.Context, acc *teamv1.Accepted) error {
	a, err := h.lookup(ctx, acc.GetAgent())
	if err != nil {
		return err
	}
	acc.Conversation = conversation(ctx, h.c.Conversations, a, Thread{acc.GetOwner(), acc.GetMessage().GetContextId()}, false)
	before := acc.GetPins()
	if acc.Pins, err = h.c.pins(ctx, acc.GetAgent()); err != nil {
		return err
	}
	changed := acc.GetPins().GetRevisions()[acc.GetAgent()] != before.GetRevisions()[acc.GetAgent()]
	if !sameMaker(before, acc.GetPins(), acc.GetAgent()) || changed && !h.allowsRuns(acc.GetOwner(), acc.GetAgent()) {
		return h.notFound(ctx, acc.GetAgent())
	}
	if err := h.c.pinTeam(ctx, before, acc); err != nil {
		return err
	}
	digest, err := digestOf(acc.GetAgent(), acc.GetMessage())
	if err != nil {
		return err
	}
	_, _, err = h.c.Store.Create(ctx, New{Owner: acc.GetOwner(), Accepted: acc, MessageID: acc.GetTaskId(), Digest: digest})
	h.c.Wake(acc.GetTaskId())                     // also after an error: the task may have been recorded
	if err != nil && !errors.Is(err, ErrReused) { // with another text, if the end was reported twice
		return fmt.Errorf("begin task %s: %w", acc.GetTaskId(), err)
	}
	return nil
}

// Outcome returns how a root task has ended, including its reply message. It returns nil and no
// error if the task has not ended. Errors: TASK_NOT_FOUND, and errors of the store.
func (h *Handler) Outcome(ctx context.Context, k Key) (*teamv1.Ended, error) {
	f, err := h.journals.fold(ctx, k, "")
	if err != nil || f.Ended() == nil {
		return nil, err
	}
	return &teamv1.Ended{
		Outcome: f.Ended().GetOutcome(), Error: f.Ended().GetError(), Spent: f.Ended().GetSpent(), Result: &teamv1.Ended_Reply{Reply: f.Answer()},
	}, nil
}
