package a2a

import (
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
			if f.dropped() {
				f.artifacts = nil
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

// Paused reports whether the run is paused.
func (f *Fold) Paused() bool { return f.paused && f.ended == nil }

// Stop is the command that the run was stopped with; nil: it was not. Shared: read only.
func (f *Fold) Stop() *teamv1.Commanded { return f.stop }

// dropped reports whether the run was stopped without its results: it has no artifacts.
func (f *Fold) dropped() bool { return f.stop != nil && !f.stop.GetSavePartial() }

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
