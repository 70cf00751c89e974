package feed

import (
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
)

// teller folds the events of a root, in order from the first, and makes of each
// what readers of one scope are told. One goroutine at a time.
type teller struct {
	fold    *project.Fold
	details bool
	seq     int64                      // of the last event, whatever its scope
	gaps    bool                       // of a task that has ended long ago: its streamed text is deleted
	closes  func(a2av1.TaskState) bool // a stream of a task that has not ended
	asked   int64                      // the event with which the task came to a state at which streams are closed; 0 while it is in none
	taken   map[int64]int64            // where inbox rows were put on record, by their numbers
}

func newTeller(k Key, closes func(a2av1.TaskState) bool) teller {
	return teller{fold: project.New(k.Root, k.Scope), details: k.Details, closes: closes}
}

// skip folds an event that nobody is told of.
func (t *teller) skip(ev *teamv1.Event) {
	before := t.fold.State()
	t.fold.Apply(ev)
	t.note(ev, before)
}

// take folds an event; nil when there is nothing to tell.
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

// withoutCursor takes the sequence out of what is not the last response of its
// event: who went on behind it would miss the rest.
func withoutCursor(r *a2av1.StreamResponse) {
	for _, m := range []*structpb.Struct{r.GetArtifactUpdate().GetMetadata(), r.GetStatusUpdate().GetMetadata()} {
		delete(m.GetFields()[project.TeamRunURI].GetStructValue().GetFields(), "seq")
	}
}

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

// task is the task as it is, as the first thing a reader is told.
func (t *teller) task(history *int32) Update {
	return newUpdate(t.fold.Last(), &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{Task: project.CutHistory(t.fold.Snapshot(t.details), history)}})
}
