package monitor

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
)

// taskWatch is the state of a stream that watches one task. It is not safe for concurrent
// use.
type taskWatch struct {
	m       *Monitor
	key     runs.Key // of the root task
	scope   string
	account string
	run     *run
	after   int64
	first   *teamv1.TaskSnapshot // sent first; nil if the stream resumes from a cursor
}

// begin reads the journal and decides whether the stream can resume after the caller's
// sequence number.
func (w *taskWatch) begin(ctx context.Context) error {
	task, whole := project.New(w.key.ID, w.scope), true
	err := w.m.each(ctx, w.key, 0, func(ev *teamv1.Event) bool {
		whole = whole && (ev.GetSeq() <= w.after || ev.GetSeq() == w.run.Seq+1)
		w.run.apply(ev)
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
	w.first = &teamv1.TaskSnapshot{Task: task.Task(), Trace: w.m.trace(w.run, w.scope, w.account)}
	return nil
}

// stream sends the snapshot, then the events until the task has ended.
func (w *taskWatch) stream(ctx context.Context, yield func(*teamv1.WatchTaskResponse, error) bool) {
	sent := w.after
	if s := w.first; s != nil {
		w.first = nil
		if !yield(&teamv1.WatchTaskResponse{Seq: sent, Kind: &teamv1.WatchTaskResponse_Snapshot{Snapshot: s}}, nil) {
			return
		}
	}
	if w.over() && sent >= w.run.Seq {
		return
	}
	for ev, err := range w.m.h.WatchEvents(ctx, w.key, sent) {
		if err != nil {
			yield(nil, err)
			return
		}
		if ev.GetSeq() > w.run.Seq {
			w.run.apply(ev)
		}
		if e := w.run.event(ev); e != nil && agent.Within(ev.GetScope(), w.scope) &&
			!yield(&teamv1.WatchTaskResponse{Seq: ev.GetSeq(), Kind: &teamv1.WatchTaskResponse_Event{Event: e}}, nil) {
			return
		}
		if w.over() && ev.GetSeq() >= w.run.Seq {
			return
		}
	}
}

// over reports whether the task has ended.
func (w *taskWatch) over() bool {
	n := w.run.Node(w.scope)
	return n != nil && !n.Open()
}

// event returns an event in the form for watchers, nil if it is not public.
func (r *run) event(ev *teamv1.Event) *teamv1.MonitorEvent {
	if ev = project.Public(ev); ev == nil {
		return nil
	}
	return &teamv1.MonitorEvent{RootTaskId: r.Root, TaskId: r.id(ev.GetScope()), Event: ev}
}
