package feed

import (
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
)

// teller folds the events of a root, in order from the first, and makes the entries for the readers
// of one scope. It is not safe for concurrent use.
type teller struct {
	fold    *project.Fold
	details bool
	seq     int64                      // sequence number of the last event, in any scope
	gaps    bool                       // the store has deleted streamed text after the task ended
	closes  func(a2av1.TaskState) bool // see Config.Closes
	asked   int64                      // event at which the task entered a state that closes streams; 0 while in none
	taken   map[int64]int64            // sequence numbers of the events that record inbox rows, by row
}

// newTeller returns a teller that has folded no events.
func newTeller(k Key, closes func(a2av1.TaskState) bool) teller {
	return teller{fold: project.New(k.Root, k.Scope), details: k.Details, closes: closes}
}

// skip folds an event without an entry for readers.
func (t *teller) skip(ev *teamv1.Event) {
	before := t.fold.State()
	t.fold.Apply(ev)
	t.note(ev, before)
}

// take folds an event and returns its entry, nil if readers receive nothing.
func (t *teller) take(ev *teamv1.Event) *entry {
	before, visible := t.fold.State(), t.fold.Visible()
	responses := t.fold.Project(ev, t.details)
	t.note(ev, before)
	e := &entry{seq: ev.GetSeq(), over: t.fold.Terminal()}
	for i, r := range responses {
		seq := e.seq
		if i < len(responses)-1 {
			seq = 0
			withoutCursor(r)
		}
		e.updates = append(e.updates, newUpdate(seq, r))
	}
	switch {
	case !visible && t.fold.Visible():
		e.first = t.task(nil)
	case !visible && t.fold.Ended().GetDirect():
		e.first = newUpdate(e.seq, &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Message{Message: t.fold.Direct()}})
	case len(e.updates) == 0:
		return nil
	}
	e.measure()
	return e
}

// withoutCursor removes the sequence number from a response that is not the last one of its event.
// A reader that resumed after it would miss the rest.
func withoutCursor(r *a2av1.StreamResponse) {
	for _, m := range []*structpb.Struct{r.GetArtifactUpdate().GetMetadata(), r.GetStatusUpdate().GetMetadata()} {
		delete(m.GetFields()[project.TeamRunURI].GetStructValue().GetFields(), "seq")
	}
}

// note updates the state of the teller after an event was folded. before is the state of the task
// before it.
func (t *teller) note(ev *teamv1.Event, before a2av1.TaskState) {
	t.gaps = t.gaps || ev.GetSeq() > t.seq+1
	t.seq = ev.GetSeq()
	switch now := t.fold.State(); {
	case !t.closes(now):
		t.asked = 0
	case now != before:
		t.asked = t.seq
	}
	if n := project.Consumed(ev); n != 0 {
		if t.taken == nil {
			t.taken = map[int64]int64{}
		}
		t.taken[n] = t.seq
	}
}

// task returns the current task as an update.
func (t *teller) task(history *int32) Update {
	return newUpdate(t.fold.Last(), &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{Task: project.CutHistory(t.fold.Snapshot(t.details), history)}})
}
