package a2a

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Start is a collaboration to begin: a task with a brief.
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
	// Entry is the catalog entry that defines the team; empty if it is not in a catalog.
	Entry string
}

// Stop says how a task is to be stopped.
type Stop struct {
	// Force cuts what runs; not set: it is waited for, and nothing more begins.
	Force bool
	// SavePartial keeps the artifacts of the task. Not set: it has none from then on;
	// everything else is shown as before.
	SavePartial bool
	// Reason in words, for the record.
	Reason string
}

// Start begins a collaboration and returns at once. Errors: those of SendMessage,
// COLLABORATION_IN_PROGRESS if Concurrent collaborations of the team are running, and
// AGENT_NOT_FOUND if its catalog entry has been deleted.
func (h *Handler) Start(ctx context.Context, s Start) (*Fold, error) {
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	var c checker
	c.send(&a2av1.SendMessageRequest{Tenant: s.Agent, Message: s.Message})
	if s.Message.GetTaskId() != "" {
		c.Add("message.taskId", "is that of a task; a collaboration is a new one: leave it out")
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	in, err := h.put(ctx, who, &send{
		tenant: s.Agent, message: s.Message, key: s.Message.GetMessageId(), concurrent: max(s.Concurrent, 1), entry: s.Entry,
		accepted: &teamv1.Accepted{
			Collaboration: s.Brief, Limits: s.Limits, Deadline: s.deadline(h.c.Clock()), Extensions: ExtensionsOf(ctx), Trace: traceOf(ctx),
		},
	})
	if err != nil {
		return nil, err
	}
	return h.journals.fold(ctx, in.key, "")
}

// deadline is when the collaboration must have ended; nil is never.
func (s *Start) deadline(now time.Time) *timestamppb.Timestamp {
	at := s.Deadline
	if most := s.Brief.GetMaxDuration().AsDuration(); most > 0 && (at.IsZero() || now.Add(most).Before(at)) {
		at = now.Add(most)
	}
	if at.IsZero() {
		return nil
	}
	return timestamppb.New(at)
}

// Pause has a task begin nothing more until Resume. What runs goes on to its
// end, also at peers, and so do tasks of their own that it has begun. It returns when
// that is on record, for which it waits some seconds at most for what is about to begin,
// and no cancel waits for it; a task that is paused, stops or has ended is returned as it
// is. Errors: TASK_NOT_FOUND, UNSUPPORTED_OPERATION for a part of a task.
func (h *Handler) Pause(ctx context.Context, id string) (*Fold, error) {
	return h.turn(ctx, id, teamv1.Commanded_COMMAND_PAUSE)
}

// Resume has a task go on that was paused: the time that it stood still does not
// count. One that is not is returned as it is. Errors: as of Pause.
func (h *Handler) Resume(ctx context.Context, id string) (*Fold, error) {
	return h.turn(ctx, id, teamv1.Commanded_COMMAND_RESUME)
}

// turn puts a pause or its end on record, once: it is the n-th of the task. One that
// was left for the task before and is not on record yet, as nobody drives it, counts.
func (h *Handler) turn(ctx context.Context, id string, c teamv1.Commanded_Command) (*Fold, error) {
	f, err := h.whole(ctx, id)
	if err != nil {
		return nil, err
	}
	left, paused, n := false, f.Paused(), f.Switches()
	for !f.Terminal() && f.Stop() == nil {
		known, err := h.turned(ctx, f, n)
		switch {
		case err != nil:
			return nil, err
		case known:
			left, paused = true, !paused
			n++
			continue
		case paused != (c == teamv1.Commanded_COMMAND_PAUSE):
		case !left:
			return f, nil
		default:
			n-- // the last one that was left is this one: it is waited for
		}
		return h.command(ctx, f, turnKey(f, n), []byte(c.String()), &teamv1.Commanded{Command: c}, func(now *Fold) bool { return now.Switches() > n })
	}
	return f, nil
}

// turned reports whether the turn of a task after n was left for it.
func (h *Handler) turned(ctx context.Context, f *Fold, n int) (bool, error) {
	who, _ := CallerOf(ctx)
	_, err := h.c.Store.Sent(ctx, who.Owner(), "", turnKey(f, n))
	switch {
	case errors.Is(err, ErrNotFound):
		return false, nil
	case err != nil:
		return false, storeError(f.ID(), err)
	}
	return true, nil
}

// turnKey is the key of the turn of a task after n, among all that the owner sends.
func turnKey(f *Fold, n int) string { return "turn/" + f.Root() + "/" + strconv.Itoa(n) }

// Stop ends a task: its outcome is CANCELED, and the record says that it was stopped.
// It waits for the end as CancelTask does. A task that has
// ended is returned as it is; of several stops the first says what is shown, and
// each that is forced cuts what runs. Errors: as of Pause.
func (h *Handler) Stop(ctx context.Context, id string, s Stop) (*Fold, error) {
	f, err := h.whole(ctx, id)
	if err != nil || f.Terminal() {
		return f, err
	}
	key := "stop"
	if s.Force {
		key = "stop/force"
	}
	return h.command(ctx, f, key, nil, &teamv1.Commanded{
		Command: teamv1.Commanded_COMMAND_STOP, Force: s.Force, SavePartial: s.SavePartial, Reason: s.Reason,
	}, (*Fold).Terminal)
}

// whole returns a task of the caller that is no part of another one.
func (h *Handler) whole(ctx context.Context, id string) (*Fold, error) {
	f, err := h.owned(ctx, "", id)
	if err != nil {
		return nil, err
	}
	if f.Scope() != "" {
		return nil, UnsupportedOperation("%q is a part of task %q; only that can be paused, resumed or stopped", clip(id), f.Root())
	}
	return f, nil
}
