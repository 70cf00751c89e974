package a2a

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// mayResume returns the HALTED error for a task of the caller that a halt does not let continue.
func (h *Handler) mayResume(ctx context.Context, f *Fold) error {
	who, _ := CallerOf(ctx)
	if err := h.c.Halts.Refusal(who.Owner(), f.Account(), f.Agent()); err != nil {
		return err
	}
	return h.c.Halts.InForce(f.PausedBy().GetVersion())
}

// Halted returns what became of a task or a step of any owner after a halt has reached it; see
// project.Fold.Halted. The error is TASK_NOT_FOUND or the store's.
func (h *Handler) Halted(ctx context.Context, k Key) (*teamv1.HaltedTask, error) {
	root, scope := agent.SplitTask(k.ID)
	f, err := h.journals.fold(ctx, Key{k.Owner, root}, scope)
	if err != nil {
		return nil, err
	}
	t := &teamv1.HaltedTask{TaskId: k.ID, Owner: k.Owner}
	t.State, t.Agent, t.Receipt = f.Halted()
	return t, nil
}
