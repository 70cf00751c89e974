package a2a

import (
	"context"
	"errors"
	"strconv"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/halt/inforce"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

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

// control gives running tasks commands, and waits for their effect.
type control struct {
	tasks    tasks
	halts    *inforce.Halts
	wake     func()
	clock    func() time.Time
	patience time.Duration // how long it waits at most
}

// CancelTask cancels a task of the caller and everything below it; see A2A 1.0, section 3.1.5. It
// waits for the end, at most Config.CancelWait, and then returns the task as it is, with
// cancel_requested in its metadata. A task that is canceled already is returned again. Errors:
// TASK_NOT_FOUND, TASK_NOT_CANCELABLE if the task has ended in another way, and WAIT_TIMEOUT if
// the deadline of ctx passes before.
func (h *Handler) CancelTask(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	t, err := h.control.cancel(ctx, req.GetTenant(), req.GetId())
	if err != nil {
		return nil, err
	}
	if over(t) && t.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED {
		return nil, a2aerror.TaskNotCancelable(req.GetId(), t.GetStatus().GetState())
	}
	return project.CutHistory(t, nil), nil
}

// Cancel implements the Agent service's Cancel: it cancels a task that Process created, named by
// its id or by its key, and waits for the end as CancelTask does. Errors: INVALID_REQUEST,
// TASK_NOT_FOUND.
func (h *Handler) Cancel(ctx context.Context, req *teamv1.CancelRequest) (*teamv1.CancelResponse, error) {
	id := req.GetTaskId()
	if id == "" {
		var err error
		if id, err = h.inbox.byKey(ctx, req); err != nil {
			return nil, err
		}
	}
	t, err := h.control.cancel(ctx, req.GetAgentId(), id)
	if err != nil {
		return nil, err
	}
	return &teamv1.CancelResponse{State: t.GetStatus().GetState(), Spent: RunOf(t.GetMetadata()).GetSpent()}, nil
}

// cancel sends a task of the caller the command to cancel and waits for its end, unless it has ended. It returns the
// task as the caller sees it.
func (c control) cancel(ctx context.Context, tenant, id string) (*a2av1.Task, error) {
	k, err := keyOf(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	t, _, err := c.tasks.task(ctx, tenant, k)
	if err != nil || over(t) {
		return t, err
	}
	_, scope := agent.SplitTask(id)
	return c.command(ctx, k, "cancel/"+scope, nil, &teamv1.Commanded{Command: teamv1.Commanded_COMMAND_CANCEL}, (*project.Fold).Terminal)
}

// command adds a command to the inbox of a task and waits until had returns true or the task
// has ended, as long as its patience lasts. After that time the result shows the command as if it had
// been recorded. key identifies the command within the task or, if digest is not nil, among
// everything that the owner sends.
func (c control) command(ctx context.Context, k runs.Key, key string, digest []byte, cmd *teamv1.Commanded, had func(*project.Fold) bool) (*a2av1.Task, error) {
	root, scope := agent.SplitTask(k.ID)
	cmd.By = k.Owner
	in := &teamv1.Inbound{Scope: scope, Key: key, Kind: &teamv1.Inbound_Commanded{Commanded: cmd}}
	if _, _, err := c.tasks.store.Put(ctx, runs.Key{Owner: k.Owner, ID: root}, in, digest, nil); err != nil && !errors.Is(err, runs.ErrTerminal) {
		return nil, runs.StoreError(k.ID, err)
	}
	c.wake()
	wait, stop := context.WithTimeout(ctx, c.patience)
	defer stop()
	tail := c.tasks.feeds.Tail(k.Owner, root, 0)
	defer tail.Close()
	f := project.New(root, scope)
	for ev, err := range tail.Events(wait) {
		if err != nil && (wait.Err() == nil || ctx.Err() != nil) {
			return nil, waitError(k.ID, becomes(cmd), err)
		}
		if err != nil {
			f.Expect(cmd, c.clock())
			break
		}
		if f.Apply(ev.Event); f.Terminal() || had(f) {
			break
		}
	}
	return f.Snapshot(details(ctx)), nil
}

// becomes returns what happens, after a command, to a task that is no longer waited for; see
// waitError.
func becomes(c *teamv1.Commanded) string {
	switch c.GetCommand() {
	case teamv1.Commanded_COMMAND_CANCEL:
		return "is being canceled"
	case teamv1.Commanded_COMMAND_STOP:
		return "is being stopped"
	default:
		return goesOn
	}
}

// Pause prevents all steps of a task from beginning until Resume is called. Running steps finish,
// also those of remote agents, and detached tasks continue. Pause returns when the pause has been
// recorded; before that, it waits at most a few seconds for steps that are about to begin.
// Meanwhile the task can be canceled. If the task is paused, is being stopped or has ended, it is
// returned unchanged. Errors: TASK_NOT_FOUND, and UNSUPPORTED_OPERATION if the id is that of a
// delegation within a task.
func (h *Handler) Pause(ctx context.Context, id string) (*a2av1.Task, error) {
	return h.control.turn(ctx, id, teamv1.Commanded_COMMAND_PAUSE)
}

// Resume continues a paused task. The time of the pause does not count towards the timeout of the
// task. A task that is not paused is returned unchanged. Errors are those of Pause, and HALTED if a
// halt has paused the task, or would.
func (h *Handler) Resume(ctx context.Context, id string) (*a2av1.Task, error) {
	return h.control.turn(ctx, id, teamv1.Commanded_COMMAND_RESUME)
}

// turn sends the task a pause or resume command, unless it is in that state already. Pauses and
// resumes of a task alternate and are numbered, and each number is used only once. A command that
// was sent before but is not recorded yet, because no process drives the task, counts as well.
func (c control) turn(ctx context.Context, id string, cmd teamv1.Commanded_Command) (*a2av1.Task, error) {
	k, t, err := c.whole(ctx, id)
	if err != nil || over(t) {
		return t, err
	}
	f, err := c.tasks.fold(ctx, k, "")
	if err != nil {
		return nil, err
	}
	if err := c.mayResume(k, f); err != nil && cmd == teamv1.Commanded_COMMAND_RESUME {
		return nil, err
	}
	left, paused, n := false, f.Paused(), f.Switches()
	for !f.Terminal() && f.Stop() == nil {
		known, err := c.turned(ctx, k, n)
		switch {
		case err != nil:
			return nil, err
		case known:
			left, paused = true, !paused
			n++
			continue
		case paused != (cmd == teamv1.Commanded_COMMAND_PAUSE):
		case !left:
			return f.Task(), nil
		default:
			n-- // the last command sent is the wanted one: wait for it
		}
		return c.command(ctx, k, turnKey(k, n), []byte(cmd.String()), &teamv1.Commanded{Command: cmd}, func(now *project.Fold) bool { return now.Switches() > n })
	}
	return f.Task(), nil
}

// turned reports whether the pause or resume with the number n was sent to the task.
func (c control) turned(ctx context.Context, k runs.Key, n int) (bool, error) {
	_, err := c.tasks.store.Sent(ctx, k.Owner, "", turnKey(k, n))
	if err != nil && !errors.Is(err, runs.ErrNotFound) {
		return false, runs.StoreError(k.ID, err)
	}
	return err == nil, nil
}

// turnKey returns the key of the pause or resume with the number n, among everything that the
// owner sends.
func turnKey(k runs.Key, n int) string { return "turn/" + k.ID + "/" + strconv.Itoa(n) }

// mayResume returns the HALTED error for a task of the caller that a halt does not let continue.
func (c control) mayResume(k runs.Key, f *project.Fold) error {
	if err := c.halts.Refusal(k.Owner, f.Account(), f.Agent()); err != nil {
		return err
	}
	return c.halts.InForce(f.PausedBy().GetVersion())
}

// Stop ends a task with the outcome CANCELED and records that it was stopped. It waits for the
// end, like CancelTask. A task that has ended is returned unchanged. If a task is stopped several
// times, the first stop decides what is shown of it, and any stop with Force cancels running
// work. Errors are those of Pause.
func (h *Handler) Stop(ctx context.Context, id string, s Stop) (*a2av1.Task, error) {
	k, t, err := h.control.whole(ctx, id)
	if err != nil || over(t) {
		return t, err
	}
	key := "stop"
	if s.Force {
		key = "stop/force"
	}
	return h.control.command(ctx, k, key, nil, &teamv1.Commanded{
		Command: teamv1.Commanded_COMMAND_STOP, Force: s.Force, SavePartial: s.SavePartial, Reason: s.Reason,
	}, (*project.Fold).Terminal)
}

// whole returns a root task of the caller and its key, or an error if the id is that of a delegation within a
// task.
func (c control) whole(ctx context.Context, id string) (runs.Key, *a2av1.Task, error) {
	k, err := keyOf(ctx, "", id)
	if err != nil {
		return k, nil, err
	}
	t, _, err := c.tasks.task(ctx, "", k)
	if err != nil {
		return k, nil, err
	}
	if root, scope := agent.SplitTask(id); scope != "" {
		return k, nil, a2aerror.UnsupportedOperation("%q is a delegation within task %q; only the task as a whole can be paused, resumed or stopped", a2aerror.Clip(id), root)
	}
	return k, t, nil
}
