package project

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// control is what the commands for a run have brought about.
type control struct {
	cancel   bool
	paused   bool
	switches int               // pauses and resumes so far
	stop     *teamv1.Commanded // the first one
}

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
			if !c.GetSavePartial() { // it is stopped without its results
				f.output = output{closed: true}
			}
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

// Expect folds a command for the task that is left for it and not on record yet.
func (f *Fold) Expect(c *teamv1.Commanded, at time.Time) {
	f.commanded(&teamv1.Event{Scope: f.scope, Time: timestamppb.New(at)}, c)
}

// Switches returns how often the run was paused and resumed so far.
func (c *control) Switches() int { return c.switches }

// Paused reports whether the run is paused.
func (f *Fold) Paused() bool { return f.paused && f.ended == nil }

// Stop is the command that the run was stopped with; nil: it was not. Shared: read only.
func (c *control) Stop() *teamv1.Commanded { return c.stop }

// Consumed returns the inbox row that an event puts on record, 0 without one.
func Consumed(ev *teamv1.Event) int64 {
	return max(ev.GetAnswered().GetInbound(), ev.GetReceived().GetInbound(), ev.GetCommanded().GetInbound())
}
