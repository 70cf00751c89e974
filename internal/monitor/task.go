package monitor

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// taskWatch is a watcher of one task. One goroutine at a time.
type taskWatch struct {
	m       *Monitor
	key     a2a.Key // of the root
	scope   string
	account string
	run     *run
	after   int64
	first   *teamv1.TaskSnapshot // told first; nil where it goes on behind a cursor
}

// begin reads what is on record and finds out where to begin.
func (w *taskWatch) begin(ctx context.Context, id string) error {
	if _, err := w.m.h.Owned(ctx, id); err != nil {
		return err
	}
	task, whole := project.New(w.key.ID, w.scope), true
	err := w.m.each(ctx, w.key, 0, func(ev *teamv1.Event) bool {
		whole = whole && (ev.GetSeq() <= w.after || ev.GetSeq() == w.run.Seq+1)
		w.run.take(ev)
		task.Apply(ev)
		return true
	})
	if err != nil {
		return err
	}
	if w.after > 0 && w.after <= w.run.Seq && whole {
		return nil
	}
	w.after = w.run.Seq
	w.first = &teamv1.TaskSnapshot{Task: task.Task(), Trace: w.run.trace(w.scope, w.account)}
	return nil
}

// tell tells the snapshot, then what happens.
func (w *taskWatch) tell(ctx context.Context, yield func(*teamv1.WatchTaskResponse, error) bool) {
	told := w.after
	if s := w.first; s != nil {
		w.first = nil
		if !yield(&teamv1.WatchTaskResponse{Seq: told, Kind: &teamv1.WatchTaskResponse_Snapshot{Snapshot: s}}, nil) {
			return
		}
	}
	if w.over() && told >= w.run.Seq {
		return
	}
	for ev, err := range w.m.h.Tell(ctx, w.key, told) {
		if err != nil {
			yield(nil, err)
			return
		}
		if ev.Event.GetSeq() > w.run.Seq {
			w.run.take(ev.Event)
		}
		if e := w.run.event(ev.Event); e != nil && agent.Within(ev.Event.GetScope(), w.scope) &&
			!yield(&teamv1.WatchTaskResponse{Seq: ev.Event.GetSeq(), Kind: &teamv1.WatchTaskResponse_Event{Event: e}}, nil) {
			return
		}
		if w.over() && ev.Event.GetSeq() >= w.run.Seq {
			return
		}
	}
}

// over reports whether the task has ended.
func (w *taskWatch) over() bool {
	n := w.run.Node(w.scope)
	return n != nil && !n.Open()
}

// event is an event of the run as watchers are told it, nil for one that is not shown.
func (r *run) event(ev *teamv1.Event) *teamv1.MonitorEvent {
	if ev = project.Public(ev); ev == nil {
		return nil
	}
	return &teamv1.MonitorEvent{RootTaskId: r.Root, TaskId: r.id(ev.GetScope()), Event: ev}
}
