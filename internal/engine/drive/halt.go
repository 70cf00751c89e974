package drive

import (
	"context"
	"sync"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/halt/inforce"
	"github.com/agentteams/team-server/internal/journal"
)

// halting is what halts ask of a run.
type halting struct {
	use  *inforce.Use
	wake chan struct{} // holds one signal: the halts have changed, or stop was called
	seen int64         // version of the halts that obeyHalts has read last

	mu sync.Mutex
	by *teamv1.Halt // the halt to obey, or nil; guarded by mu
}

// stop implements HaltRun.Stop: no step begins from here on, and the run is canceled or paused soon.
func (d *drive) stop(by *teamv1.Halt) {
	if by.GetPause() {
		d.run.Pause()
	} else {
		d.run.Stop()
		d.run.Fence("")
	}
	d.halting.mu.Lock()
	if d.halting.by == nil || d.halting.by.GetPause() {
		d.halting.by = by
	}
	d.halting.mu.Unlock()
	d.halting.changed()
}

// changed implements HaltRun.Changed.
func (h *halting) changed() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// parks returns Park.Halts for a run that is or is not paused by a halt.
func (h *halting) parks(paused bool) int64 {
	if !paused {
		return 0
	}
	return h.seen
}

// underHalts registers the run with the halts of the process, for as long as it is driven.
func (d *drive) underHalts(ctx context.Context) (_ context.Context, end func()) {
	d.halting.wake = make(chan struct{}, 1)
	agents := []string{d.accepted.GetAgent()}
	if team := d.accepted.GetDetached().GetTeam(); team != "" {
		agents = append(agents, team)
	}
	d.halting.use, ctx = d.Halts.Run(ctx, &inforce.Run{
		Task: d.claim.Root, Owner: d.claim.Owner, Agents: agents, Accounts: d.accepted.GetPins().GetAccounts(), Stop: d.stop, Changed: d.halting.changed,
	})
	return ctx, d.halting.use.End
}

// halted returns the event for the next command that halts give to the run: it is to be canceled or
// paused, or the halt that has paused it is no longer in force. It returns nil if halts do not change
// the run. A pause
// that was asked for is recorded even if the halt has ended since, because steps may wait for the
// resume.
func (d *drive) halted() *teamv1.Event {
	var old *teamv1.Halt
	var paused, canceled bool
	d.claim.Journal.State(func(s *journal.Summary) { paused, old, canceled = s.Paused, s.PausedBy, s.CanceledAt("") > 0 })
	d.halting.mu.Lock()
	if d.halting.by.GetPause() && paused { // there is nothing to pause
		d.halting.by = nil
	}
	by := d.halting.by
	d.halting.mu.Unlock()
	c := &teamv1.Commanded{Halt: by, By: by.GetBy(), Reason: by.GetReason()}
	switch {
	case canceled:
		return nil
	case by != nil && !by.GetPause():
		c.Command = teamv1.Commanded_COMMAND_CANCEL
	case by != nil && !paused:
		c.Command = teamv1.Commanded_COMMAND_PAUSE
	case paused && old != nil && d.Halts.InForce(old.GetVersion()) == nil:
		c.Command, c.Halt, c.By, c.Reason = teamv1.Commanded_COMMAND_RESUME, old, "", ""
	default:
		return nil
	}
	if c.GetCommand() != teamv1.Commanded_COMMAND_PAUSE {
		c.Waited = d.hasWaited()
	}
	return d.event("", &teamv1.Event{Kind: &teamv1.Event_Commanded{Commanded: c}})
}

// obeyed notes that a command of a halt is on record.
func (d *drive) obeyed(c *teamv1.Commanded) {
	d.halting.mu.Lock()
	defer d.halting.mu.Unlock()
	if c.GetHalt() != nil && d.halting.by.GetVersion() == c.GetHalt().GetVersion() {
		d.halting.by = nil
	}
}

// obeyHalts records the commands of halts at a time when no agent runs.
func (d *drive) obeyHalts(ctx context.Context) error {
	d.halting.seen = d.Halts.Version()
	for {
		ev := d.halted()
		if ev == nil {
			return nil
		}
		if err := d.append(ctx, ev); err != nil {
			return err
		}
		d.obeyed(ev.GetCommanded())
	}
}

// handHalts records and applies the commands of halts while the agent runs.
func (d *drive) handHalts(ctx context.Context) {
	for ctx.Err() == nil && d.broken.Load() == nil {
		ev := d.halted()
		if ev == nil {
			return
		}
		d.command(ctx, ev)
		d.obeyed(ev.GetCommanded())
	}
}

// pausedBy returns the version of the halt that has paused the run, 0 if none has.
func (d *drive) pausedBy() int64 {
	return of(d, func(s *journal.Summary) int64 { return s.PausedBy.GetVersion() })
}

// canceledByHalt returns the halt that has canceled the run, nil if none has.
func (d *drive) canceledByHalt() *teamv1.Halt {
	return of(d, func(s *journal.Summary) *teamv1.Halt { return s.CanceledBy })
}
