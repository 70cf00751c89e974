package project

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
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

// Expect folds a command for the task that is left for it and not on record yet.
func (f *Fold) Expect(c *teamv1.Commanded, at time.Time) {
	f.commanded(&teamv1.Event{Scope: f.scope, Time: timestamppb.New(at)}, c)
}

// Switches returns how often the run was paused and resumed so far.
func (f *Fold) Switches() int { return f.switches }

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

// Answer is the message that the run ended with, nil without one. Shared: read only.
func (f *Fold) Answer() *a2av1.Message { return f.answer }

// Ended is how the run ended; nil: it has not. Shared: read only.
func (f *Fold) Ended() *teamv1.Ended { return f.ended }

// checked adds a warning for a middleware that failed and was skipped. A message that a
// guardrail blocked is reported by the step or run that ends with it.
func (f *Fold) checked(c *teamv1.Checked) {
	if c.GetError() != nil && !c.GetBlocked() {
		f.warn(c.GetError().GetMessage())
	}
}

// maxShownWarnings bounds the warnings of a task.
const maxShownWarnings = 100

// warn adds warnings, each once.
func (f *Fold) warn(texts ...string) {
	for _, text := range texts {
		if len(f.warnings) < maxShownWarnings && !slices.Contains(f.warnings, text) {
			f.warnings = append(f.warnings, text)
		}
	}
}

// given puts in place of the message that was decided on the one that a child was
// given, where a middleware has changed it.
func (f *Fold) given(in *teamv1.Input) {
	m := in.GetMessage()
	if m == nil {
		m = f.texts[in.GetRef()]
	}
	if m != nil && len(f.history) > 0 {
		f.history[0] = f.Placed(m)
	}
}

// Consumed returns the inbox row that an event puts on record, 0 without one.
func Consumed(ev *teamv1.Event) int64 {
	return max(ev.GetAnswered().GetInbound(), ev.GetReceived().GetInbound(), ev.GetCommanded().GetInbound())
}
