package drive

import (
	"context"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

// beginning is how long a pause or a stop waits for steps that are about to begin.
const beginning = 2 * time.Second

// command records a command while the agent runs and applies it. A command that keeps work from
// beginning is applied before it is recorded, and one that lets work begin after it is recorded.
func (d *drive) command(ctx context.Context, ev *teamv1.Event) {
	c := ev.GetCommanded()
	var begun <-chan struct{}
	switch c.GetCommand() {
	case teamv1.Commanded_COMMAND_PAUSE:
		begun = d.rec.run.Pause()
	case teamv1.Commanded_COMMAND_STOP:
		begun = d.rec.run.Stop()
	default:
	}
	switch {
	case journal.Cancels(c):
		d.rec.run.Fence(ev.GetScope())
	case begun != nil:
		d.settle(ctx, begun)
	}
	ctx = context.WithoutCancel(ctx)
	if err := d.rec.write(ctx, []*teamv1.Event{ev}); err != nil {
		_ = d.rec.journalError(err) // the agent's next event meets the same error
		return
	}
	d.obey(ev, c)
	switch {
	case !journal.Cancels(c):
	case ev.GetScope() == "":
		d.rec.cancel(agent.ErrCanceled)
	default:
		d.rec.run.Cancel(ev.GetScope())
	}
}

// settle waits until the steps that were about to begin before a pause have begun, for example
// while a middleware checks their messages. It waits at most for beginning and then holds those
// steps back. Meanwhile it applies cancels that arrive, and it returns when ctx ends.
func (d *drive) settle(ctx context.Context, begun <-chan struct{}) {
	late := time.NewTimer(beginning)
	defer late.Stop()
	for {
		select {
		case <-begun:
			return
		default:
		}
		d.handCancels(ctx)
		select {
		case <-begun:
		case <-d.rec.claim.Journal.Wake():
		case <-ctx.Done(): // nothing is running any more
			return
		case <-late.C:
			d.rec.run.BlockStarts()
			return
		}
	}
}

// obey applies a recorded command to everything that works for the run.
func (d *drive) obey(ev *teamv1.Event, c *teamv1.Commanded) {
	switch c.GetCommand() {
	case teamv1.Commanded_COMMAND_PAUSE:
		d.rec.run.Pause()
		d.rec.run.PauseBegan(ev.GetTime().AsTime())
	case teamv1.Commanded_COMMAND_RESUME:
		d.rec.run.Resume(ev.GetTime().AsTime())
	case teamv1.Commanded_COMMAND_STOP:
		d.rec.run.Stop()
	case teamv1.Commanded_COMMAND_CANCEL, teamv1.Commanded_COMMAND_UNSPECIFIED:
	}
	if journal.Cancels(c) {
		d.rec.run.Fence(ev.GetScope())
	}
}

// commanded applies a recorded command when it is read or appended, at a time when no agent runs.
// It reports whether the command concerns the driver alone. The agent is also given cancels of
// child scopes, and resumes that say how long the run was paused.
func (d *drive) commanded(ev *teamv1.Event, c *teamv1.Commanded) (own bool) {
	d.obey(ev, c)
	switch {
	case c.GetCommand() == teamv1.Commanded_COMMAND_RESUME:
		return c.GetWaited() == nil
	case !journal.Cancels(c):
		return true
	case ev.GetScope() == "":
		d.canceled = true
		return true
	}
	d.rec.run.Cancel(ev.GetScope())
	d.closing = true
	return false
}
