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
	rec   *record
	halts *inforce.Halts // nil if nothing is ever halted
	use   *inforce.Use
	wake  chan struct{} // holds one signal: the halts have changed, or stop was called
	seen  int64         // version of the halts that obeyHalts has read last

	mu sync.Mutex
	by *teamv1.Halt // the halt to obey, or nil; guarded by mu
}

// stop implements HaltRun.Stop: no step begins from here on, and the run is canceled or paused soon.
func (h *halting) stop(by *teamv1.Halt) {
	if by.GetPause() {
		h.rec.run.Pause()
	} else {
		h.rec.run.Stop()
		h.rec.run.Fence("")
	}
	h.mu.Lock()
	if h.by == nil || h.by.GetPause() {
		h.by = by
	}
	h.mu.Unlock()
	h.changed()
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

// begin registers the run with the halts of the process, for as long as it is driven.
func (h *halting) begin(ctx context.Context) (_ context.Context, end func()) {
	h.wake = make(chan struct{}, 1)
	agents := []string{h.rec.accepted.GetAgent()}
	if team := h.rec.accepted.GetDetached().GetTeam(); team != "" {
		agents = append(agents, team)
	}
	h.use, ctx = h.halts.Run(ctx, &inforce.Run{
		Task: h.rec.claim.Root, Owner: h.rec.claim.Owner, Agents: agents, Accounts: h.rec.accepted.GetPins().GetAccounts(), Stop: h.stop, Changed: h.changed,
	})
	return ctx, h.use.End
}

// next returns the event for the next command that halts give to the run: it is to be canceled or
// paused, or the halt that has paused it is no longer in force. It returns nil if halts do not change
// the run. A pause that was asked for is recorded even if the halt has ended since, because steps may
// wait for the resume.
func (h *halting) next() *teamv1.Event {
	var old *teamv1.Halt
	var paused, canceled bool
	h.rec.claim.Journal.State(func(s *journal.Summary) { paused, old, canceled = s.Paused, s.PausedBy, s.CanceledAt("") > 0 })
	h.mu.Lock()
	if h.by.GetPause() && paused { // there is nothing to pause
		h.by = nil
	}
	by := h.by
	h.mu.Unlock()
	c := &teamv1.Commanded{Halt: by, By: by.GetBy(), Reason: by.GetReason()}
	switch {
	case canceled:
		return nil
	case by != nil && !by.GetPause():
		c.Command = teamv1.Commanded_COMMAND_CANCEL
	case by != nil && !paused:
		c.Command = teamv1.Commanded_COMMAND_PAUSE
	case paused && old != nil && h.halts.InForce(old.GetVersion()) == nil:
		c.Command, c.Halt, c.By, c.Reason = teamv1.Commanded_COMMAND_RESUME, old, "", ""
	default:
		return nil
	}
	if c.GetCommand() != teamv1.Commanded_COMMAND_PAUSE {
		c.Waited = h.rec.hasWaited()
	}
	return h.rec.event("", &teamv1.Event{Kind: &teamv1.Event_Commanded{Commanded: c}})
}

// obeyed notes that a command of a halt is on record.
func (h *halting) obeyed(c *teamv1.Commanded) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.GetHalt() != nil && h.by.GetVersion() == c.GetHalt().GetVersion() {
		h.by = nil
	}
}

// obeyHalts records the commands of halts at a time when no agent runs.
func (d *drive) obeyHalts(ctx context.Context) error {
	d.halting.seen = d.halting.halts.Version()
	for {
		ev := d.halting.next()
		if ev == nil {
			return nil
		}
		if err := d.rec.append(ctx, ev); err != nil {
			return err
		}
		d.halting.obeyed(ev.GetCommanded())
	}
}

// handHalts records and applies the commands of halts while the agent runs.
func (d *drive) handHalts(ctx context.Context) {
	for ctx.Err() == nil && d.rec.broken.Load() == nil {
		ev := d.halting.next()
		if ev == nil {
			return
		}
		d.command(ctx, ev)
		d.halting.obeyed(ev.GetCommanded())
	}
}
