package project

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// commanded folds a command for the task or for the root that it is part of.
func (f *Fold) commanded(ev *teamv1.Event) {
	c := ev.GetCommanded()
	switch c.GetCommand() {
	case teamv1.Commanded_COMMAND_RESUME:
		if ev.GetScope() == f.scope {
			f.resume(ev)
		}
	case teamv1.Commanded_COMMAND_STOP:
		if f.Stop() == c && !c.GetSavePartial() { // the task is stopped and its results are discarded
			f.output = output{tells: f.tells, closed: true}
		}
	case teamv1.Commanded_COMMAND_CANCEL, teamv1.Commanded_COMMAND_PAUSE, teamv1.Commanded_COMMAND_UNSPECIFIED:
	}
}

// above folds a command for the root, which also applies to this task of a child.
func (f *Fold) above(ev *teamv1.Event) {
	if ev.GetCommanded().GetCommand() == teamv1.Commanded_COMMAND_CANCEL {
		return // the end of the child shows its effect
	}
	f.commanded(ev)
	if f.Exists() && f.ended == nil {
		f.seq = ev.GetSeq()
	}
}

// Expect folds a command for the task that is in its inbox but not yet recorded. at is its time.
func (f *Fold) Expect(c *teamv1.Commanded, at time.Time) {
	ev := &teamv1.Event{Seq: f.view.Seq + 1, Scope: f.scope, Time: timestamppb.New(at), Kind: &teamv1.Event_Commanded{Commanded: c}}
	f.view.Control.Apply(ev)
	f.commanded(ev)
}

// Paused reports whether the run is paused and the task has not ended.
func (f *Fold) Paused() bool { return f.view.Paused && f.ended == nil }

// canceling reports whether the task itself was canceled, or the run stopped, and the task has not
// ended.
func (f *Fold) canceling() bool {
	return f.ended == nil && (f.view.CanceledAt(f.scope) > 0 || f.Stop() != nil && f.scope == "")
}

// Consumed returns the number of the inbox row that an event records, 0 without one.
func Consumed(ev *teamv1.Event) int64 {
	return max(ev.GetAnswered().GetInbound(), ev.GetReceived().GetInbound(), ev.GetCommanded().GetInbound())
}
