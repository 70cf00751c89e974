// Package monitor implements the monitor service, which shows people what teams do: the
// state of a team and its members, why a task ended as it did and what it cost, and
// which questions wait for people. Everything is computed from the journals and the list of
// tasks, except what all tasks have spent together, which the store adds up.
package monitor

import (
	"context"
	"iter"
	"sync"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/cost"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// Config configures a Monitor. Handler is required.
type Config struct {
	// Handler gives access to the tasks.
	Handler *a2a.Handler
	// Costs has what tasks have spent together. If it is nil, ListCosts is UNSUPPORTED_OPERATION.
	Costs cost.Store
	// Boards are the boards of teams, and BoardTeams says which teams have one. If Boards is
	// nil, no team has a board.
	Boards     *board.Board
	BoardTeams board.Teams
	// URL returns the address of a page about a root task, for people who operate what schedules it, "" without one. It
	// may be nil.
	URL func(root string) string
	// Clock returns the time of the store; the default is time.Now.
	Clock func() time.Time
	// Poll is how often a watched team is read when no notification of a change arrives,
	// and how often its health is checked; the default is one second.
	Poll time.Duration
	// Runs is the maximum number of ended tasks per team that are counted, the newest ones;
	// the default is 5,000.
	Runs int
}

// Monitor implements the monitor service. The context of each call carries the caller.
// Callers see their own tasks and, with the permission WATCH, those of their account. Without it they see of other
// tasks in their account only the questions to roles that they have; see Handler.QuestionsFor. Monitor is safe for
// concurrent use.
type Monitor struct {
	c Config
	h *a2a.Handler

	mu    sync.Mutex
	past  map[pastKey]*figures // of ended runs, which do not change; guarded by mu
	above map[string][]string  // the teams that an agent is a member of; guarded by mu
	asked time.Time            // when above was computed; guarded by mu
}

// pastKey identifies the work of a team in a root task.
type pastKey struct {
	root runs.Key
	team string
}

// maxPast is the maximum number of cached figures; they can be computed again.
const maxPast = 20_000

// New returns a Monitor.
func New(c Config) *Monitor {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Poll == 0 {
		c.Poll = time.Second
	}
	if c.Runs == 0 {
		c.Runs = 5000
	}
	return &Monitor{c: c, h: c.Handler, past: map[pastKey]*figures{}}
}

// overview returns the overview of the store. The error is UNSUPPORTED_OPERATION if the
// store has none.
func (m *Monitor) overview() (runs.Overview, error) {
	if o := m.h.Overview(); o != nil {
		return o, nil
	}
	return nil, a2aerror.UnsupportedOperation("the store of this server cannot list the tasks of a team")
}

// each calls apply for the events of a root task after a sequence number, in order, until
// apply returns false.
func (m *Monitor) each(ctx context.Context, root runs.Key, after int64, apply func(*teamv1.Event) bool) error {
	for {
		page, more, err := m.h.Page(ctx, root, after)
		if err != nil {
			return err
		}
		for _, rec := range page {
			after = rec.Seq
			if !apply(rec.Event) {
				return nil
			}
		}
		if !more {
			return nil
		}
	}
}

// trace returns the trace of a scope of a run, nil if the scope does not exist.
func (m *Monitor) trace(r *run, scope, account string) *teamv1.Trace {
	t := r.trace(scope, account)
	if t != nil && m.c.URL != nil {
		t.EngineUrl = m.c.URL(r.Root)
	}
	return t
}

// GetTrace returns the trace of a task that the caller may see: every decision with its reason, every
// step, and what they cost. The errors include INVALID_REQUEST and TASK_NOT_FOUND.
func (m *Monitor) GetTrace(ctx context.Context, req *teamv1.GetTraceRequest) (*teamv1.GetTraceResponse, error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	key, err := m.h.Readable(ctx, req.GetTaskId())
	if err != nil {
		return nil, err
	}
	root, scope := agent.SplitTask(req.GetTaskId())
	t := newRun(root, "", journal.Whole)
	err = m.each(ctx, key, 0, func(ev *teamv1.Event) bool { t.apply(ev); return true })
	if err != nil {
		return nil, err
	}
	tr := m.trace(t, scope, who.Account)
	if tr == nil {
		return nil, a2aerror.TaskNotFound(req.GetTaskId())
	}
	return &teamv1.GetTraceResponse{Trace: tr}, nil
}

// WatchTask returns a snapshot of a task that the caller may see followed by its events until the
// task has ended. If req.After is the sequence number of the last event that the caller
// received and all later events still exist, it continues after that event without a
// snapshot. The errors include INVALID_REQUEST, TASK_NOT_FOUND, and INSUFFICIENT_RESOURCES
// if too many streams are open. The sequence can be iterated once, before ctx ends.
func (m *Monitor) WatchTask(ctx context.Context, req *teamv1.WatchTaskRequest) (iter.Seq2[*teamv1.WatchTaskResponse, error], error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	key, err := m.h.Readable(ctx, req.GetTaskId())
	if err != nil {
		return nil, err
	}
	root, scope := agent.SplitTask(req.GetTaskId())
	leave, err := m.h.AcquireTaskStream(runs.Key{Owner: who.Owner(), ID: root}) // of the caller, who may watch the task of another one
	if err != nil {
		return nil, err
	}
	w := &taskWatch{m: m, key: key, scope: scope, account: who.Account, run: newRun(root, "", journal.Whole), after: req.GetAfter()}
	if err := w.begin(ctx); err != nil {
		leave()
		return nil, err
	}
	return closing(ctx, leave, w.stream), nil
}

// closing returns a sequence that calls release at its end, or when ctx ends before the
// iteration begins.
func closing[T any](ctx context.Context, release func(), run func(context.Context, func(T, error) bool)) iter.Seq2[T, error] {
	stop := context.AfterFunc(ctx, release)
	return func(yield func(T, error) bool) {
		if !stop() {
			var zero T
			yield(zero, context.Cause(ctx))
			return
		}
		defer release()
		run(ctx, yield)
	}
}
