package a2a

import (
	"context"
	"errors"
	"slices"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// commanded folds a command for the task, or for the root that it is part of.
func (f *Fold) commanded(ev *teamv1.Event, c *teamv1.Commanded) {
	own := ev.GetScope() == f.scope
	switch c.GetCommand() {
	case teamv1.Commanded_COMMAND_CANCEL:
		f.cancel = f.cancel || own
	case teamv1.Commanded_COMMAND_PAUSE:
		f.paused = true
		f.switches++
	case teamv1.Commanded_COMMAND_RESUME:
		f.paused = false
		f.switches++
		if own {
			f.resume(ev)
		}
	case teamv1.Commanded_COMMAND_STOP:
		f.cancel = f.cancel || own
		if f.stop == nil {
			f.stop = c
			f.conceal(!c.GetSavePartial())
		}
	case teamv1.Commanded_COMMAND_UNSPECIFIED:
	}
}

// above folds a command for the root of a child, which holds for it, too.
func (f *Fold) above(ev *teamv1.Event, c *teamv1.Commanded) {
	if c.GetCommand() == teamv1.Commanded_COMMAND_CANCEL {
		return // its effect on the child is told by the child's end
	}
	f.commanded(ev, c)
	if f.Exists() && f.ended == nil {
		f.seq = ev.GetSeq()
	}
}

// conceal shows readers nothing of what the task has brought forth, and nothing of
// what still comes (R-001-42). The record keeps it.
func (f *Fold) conceal(yes bool) {
	if !yes {
		return
	}
	f.concealed = true
	f.artifacts, f.status, f.answer = nil, nil, nil
	f.history = slices.DeleteFunc(slices.Clone(f.history), f.brought)
}

// brought reports whether a message comes from the run: what a part of it is given
// does, too, and holds what others said before.
func (f *Fold) brought(m *a2av1.Message) bool {
	return f.scope != "" || m.GetRole() == a2av1.Role_ROLE_AGENT
}

// Concealed reports whether what a run has brought forth is not shown any more, as
// whoever reads it from its beginning has to know from the beginning. Errors:
// TASK_NOT_FOUND.
func (h *Handler) Concealed(ctx context.Context, root Key) (bool, error) {
	t, _, err := h.c.Store.Task(ctx, root)
	if errors.Is(err, ErrNotFound) { // it is none yet, or the error comes where it is read
		return false, nil
	}
	if err != nil {
		return false, storeError(root.ID, err)
	}
	ends := t.GetMetadata().GetFields()[TeamRunURI].GetStructValue().GetFields()["cancelRequested"].GetBoolValue()
	if t.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED && !ends {
		return false, nil
	}
	f, err := h.fold(ctx, root, "")
	if err != nil {
		return false, err
	}
	return f.concealed, nil
}

// Paused reports whether the run is paused.
func (f *Fold) Paused() bool { return f.paused && f.ended == nil }

// Stop is the command that the run was stopped with; nil: it was not. Shared: read only.
func (f *Fold) Stop() *teamv1.Commanded { return f.stop }

// Concealed reports whether what the run has brought forth is not shown any more.
func (f *Fold) Concealed() bool { return f.concealed }

// Collaboration is the brief of the run that Start began; nil: it is no collaboration,
// or only part of one. Shared: read only.
func (f *Fold) Collaboration() *teamv1.Brief {
	if len(f.accepted.GetPath()) > 0 || f.accepted.GetDetached() != nil {
		return nil
	}
	return f.accepted.GetCollaboration()
}

// Ended is how the run ended; nil: it has not. Shared: read only.
func (f *Fold) Ended() *teamv1.Ended { return f.ended }
