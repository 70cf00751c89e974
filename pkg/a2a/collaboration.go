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

// Start describes a collaboration to start: a task of a team, with a brief.
type Start struct {
	// Agent is the id of the team.
	Agent string
	// Message is the message to the team. Its id makes the start idempotent, as for SendMessage.
	// It must not name a task.
	Message *a2av1.Message
	// Brief is the description of the collaboration that all its agents may read. It is required.
	Brief *teamv1.Brief
	// Limits apply to this collaboration in addition to those of the team. Nil means no further
	// limits.
	Limits *teamv1.Limits
	// Deadline is the time by which the collaboration must have ended. Zero means no deadline;
	// see also the maximum duration in Brief.
	Deadline time.Time
	// Concurrent is the maximum number of collaborations of the team that may run at the same
	// time, including this one. Values below 1 count as 1.
	Concurrent int
	// Entry is the catalog entry that defines the team. It is empty if the team is not in a
	// catalog.
	Entry string
}

// Stop says how a task is to be stopped.
type Stop struct {
	// Force cancels running work. If it is false, running work finishes and nothing new begins.
	Force bool
	// SavePartial keeps the artifacts of the task. If it is false, the task shows no artifacts
	// from then on; all else is shown as before.
	SavePartial bool
	// Reason is a text for the record.
	Reason string
}

// Start starts a collaboration and returns without waiting for it. Errors are those of
// SendMessage and, besides: COLLABORATION_IN_PROGRESS if s.Concurrent collaborations of the team
// are running, and AGENT_NOT_FOUND if the catalog entry has been deleted.
func (h *Handler) Start(ctx context.Context, s Start) (*Fold, error) {
	who, err := Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	var c checker
	c.send(&a2av1.SendMessageRequest{Tenant: s.Agent, Message: s.Message})
	if s.Message.GetTaskId() != "" {
		c.Add("message.taskId", "names an existing task; omit it, because a collaboration creates a new task")
	}
	if s.Brief == nil {
		c.Add("brief", "is required; say in its TaskDescription what the collaboration is to do")
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

// deadline returns the earlier of the deadline and the end of the maximum duration, or nil if
// there is neither.
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

// Pause prevents all steps of a task from beginning until Resume is called. Running steps finish,
// also those of remote agents, and detached tasks continue. Pause returns when the pause has been
// recorded; before that, it waits at most a few seconds for steps that are about to begin.
// Meanwhile the task can be canceled. If the task is paused, is being stopped or has ended, it is
// returned unchanged. Errors: TASK_NOT_FOUND, and UNSUPPORTED_OPERATION if the id is that of a
// delegation within a task.
func (h *Handler) Pause(ctx context.Context, id string) (*Fold, error) {
	return h.turn(ctx, id, teamv1.Commanded_COMMAND_PAUSE)
}

// Resume continues a paused task. The time of the pause does not count towards the timeout of the
// task. A task that is not paused is returned unchanged. Errors are those of Pause, and HALTED if a
// halt has paused the task, or would.
func (h *Handler) Resume(ctx context.Context, id string) (*Fold, error) {
	return h.turn(ctx, id, teamv1.Commanded_COMMAND_RESUME)
}

// turn sends the task a pause or resume command, unless it is in that state already. Pauses and
// resumes of a task alternate and are numbered, and each number is used only once. A command that
// was sent before but is not recorded yet, because no process drives the task, counts as well.
func (h *Handler) turn(ctx context.Context, id string, c teamv1.Commanded_Command) (*Fold, error) {
	f, err := h.whole(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := h.mayResume(ctx, f); err != nil && c == teamv1.Commanded_COMMAND_RESUME {
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
			n-- // the last command sent is the wanted one: wait for it
		}
		return h.command(ctx, f, turnKey(f, n), []byte(c.String()), &teamv1.Commanded{Command: c}, func(now *Fold) bool { return now.Switches() > n })
	}
	return f, nil
}

// turned reports whether the pause or resume with the number n was sent to the task.
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

// turnKey returns the key of the pause or resume with the number n, among everything that the
// owner sends.
func turnKey(f *Fold, n int) string { return "turn/" + f.Root() + "/" + strconv.Itoa(n) }

// Stop ends a task with the outcome CANCELED and records that it was stopped. It waits for the
// end, like CancelTask. A task that has ended is returned unchanged. If a task is stopped several
// times, the first stop decides what is shown of it, and any stop with Force cancels running
// work. Errors are those of Pause.
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

// whole returns a root task of the caller, or an error if the id is that of a delegation within a
// task.
func (h *Handler) whole(ctx context.Context, id string) (*Fold, error) {
	f, err := h.owned(ctx, "", id)
	if err != nil {
		return nil, err
	}
	if f.Scope() != "" {
		return nil, UnsupportedOperation("%q is a delegation within task %q; only the task as a whole can be paused, resumed or stopped", clip(id), f.Root())
	}
	return f, nil
}
