package drive

import (
	"context"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

// beginning is how long a pause waits for what is about to begin.
const beginning = 2 * time.Second

// command puts a command on record while the agent runs, and has it act: what
// keeps work from beginning before it is on record, what lets it begin behind that.
func (d *drive) command(ctx context.Context, ev *teamv1.Event) {
	c := ev.GetCommanded()
	var begun <-chan struct{}
	switch c.GetCommand() {
	case teamv1.Commanded_COMMAND_PAUSE:
		begun = d.run.Pause()
	case teamv1.Commanded_COMMAND_STOP:
		begun = d.run.Stop()
	default:
	}
	switch {
	case journal.Cancels(c):
		d.run.Fence(ev.GetScope())
	case begun != nil:
		d.settle(ctx, begun)
	}
	ctx = context.WithoutCancel(ctx)
	if err := d.put(ctx, ev); err != nil {
		_ = d.journalError(err) // the agent's next event meets the same error
		return
	}
	d.obey(ev, c)
	switch {
	case !journal.Cancels(c):
	case ev.GetScope() == "":
		d.cancel(agent.ErrCanceled)
	default:
		d.run.Cancel(ev.GetScope())
	}
}

// settle waits until what was about to begin before a pause has begun, as what looks
// at messages may take its time: not long, and a cancel that comes meanwhile acts at once.
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
		case <-d.claim.Journal.Wake():
		case <-ctx.Done(): // nothing runs any more
			return
		case <-late.C:
			d.run.HoldBack()
			return
		}
	}
}

// obey has a command on record act on all that works for the run.
func (d *drive) obey(ev *teamv1.Event, c *teamv1.Commanded) {
	switch c.GetCommand() {
	case teamv1.Commanded_COMMAND_PAUSE:
		d.run.Pause()
		d.run.PauseBegan(ev.GetTime().AsTime())
	case teamv1.Commanded_COMMAND_RESUME:
		d.run.Resume(ev.GetTime().AsTime())
	case teamv1.Commanded_COMMAND_STOP:
		d.run.Stop()
	case teamv1.Commanded_COMMAND_CANCEL, teamv1.Commanded_COMMAND_UNSPECIFIED:
	}
	if journal.Cancels(c) {
		d.run.Fence(ev.GetScope())
	}
}

// commanded takes note of a command on record while no agent runs. It reports
// whether it is the driver's own; a loop is told of its child's cancel, and how
// long it was paused.
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
	d.run.Cancel(ev.GetScope())
	d.closing = true
	return false
}
