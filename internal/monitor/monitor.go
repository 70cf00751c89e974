// Package monitor says what the events of tasks mean for those who watch teams:
// how a team is and what it does, why a task came out as it did and what it cost,
// and which questions wait for people. Everything is computed from the journals
// and the list of tasks; nothing is counted beside them (I5).
package monitor

import (
	"context"
	"iter"
	"sync"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// Config of a Monitor. Handler is required.
type Config struct {
	// Handler has the tasks.
	Handler *a2a.Handler
	// Boards are those of teams, and BoardTeams says which have one; unset: none has.
	Boards     *board.Board
	BoardTeams board.Teams
	// Clock tells the time of the store; unset is time.Now.
	Clock func() time.Time
	// Poll is how often a team is looked at in case that nobody said that something
	// happened, and for its health; 0 is a second.
	Poll time.Duration
	// Runs is how many of a team's tasks that have ended are counted, the newest; 0
	// is 5,000.
	Runs int
}

// Monitor answers the calls of the monitor service. Every call has a caller in its
// context and is shown that caller's tasks, and of tasks of others what they ask
// roles that it has, see Handler.QuestionsFor. Safe for concurrent use.
type Monitor struct {
	c Config
	h *a2a.Handler

	mu    sync.Mutex
	past  map[pastKey]*figures // of runs that have ended and stay as they are; guarded by mu
	above map[string][]string  // who has an agent as a member; guarded by mu
	asked time.Time            // when above was found out; guarded by mu
}

// pastKey is what a team did in a root.
type pastKey struct {
	root a2a.Key
	team string
}

// maxPast bounds the figures that are kept; they can be computed again.
const maxPast = 20_000

// New returns a monitor.
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

// whose returns the owner whose tasks the caller sees: its own.
func (m *Monitor) whose(ctx context.Context) (a2a.Caller, error) { return m.h.Caller(ctx) }

// overview is the store's. UNSUPPORTED_OPERATION where it has none.
func (m *Monitor) overview() (a2a.Overview, error) {
	if o := m.h.Overview(); o != nil {
		return o, nil
	}
	return nil, a2a.UnsupportedOperation("the store of this server does not show tasks side by side")
}

// each hands on what is on record of a root behind a sequence, in order, until take
// returns false.
func (m *Monitor) each(ctx context.Context, root a2a.Key, after int64, take func(*teamv1.Event) bool) error {
	for {
		page, more, err := m.h.Page(ctx, root, after)
		if err != nil {
			return err
		}
		for _, rec := range page {
			after = rec.Seq
			if !take(rec.Event) {
				return nil
			}
		}
		if !more {
			return nil
		}
	}
}

// GetTrace explains a task of the caller: every decision with its reason, all that
// was done, and what it cost. Errors: INVALID_REQUEST, TASK_NOT_FOUND.
func (m *Monitor) GetTrace(ctx context.Context, req *teamv1.GetTraceRequest) (*teamv1.GetTraceResponse, error) {
	who, err := m.whose(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := m.h.Owned(ctx, req.GetTaskId()); err != nil {
		return nil, err
	}
	root, scope := agent.SplitTask(req.GetTaskId())
	t := newRun(root, "", journal.Whole)
	err = m.each(ctx, a2a.Key{Owner: who.Owner(), ID: root}, 0, func(ev *teamv1.Event) bool { t.take(ev); return true })
	if err != nil {
		return nil, err
	}
	tr := t.trace(scope, who.Account)
	if tr == nil {
		return nil, a2a.TaskNotFound(req.GetTaskId())
	}
	return &teamv1.GetTraceResponse{Trace: tr}, nil
}

// WatchTask shows a task of the caller, then what happens in it, until it has
// ended. With after, the sequence that the caller has seen, it begins behind that,
// if all that followed is still there. Errors: INVALID_REQUEST, TASK_NOT_FOUND,
// INSUFFICIENT_RESOURCES when too many streams are open. The sequence is read once,
// before ctx ends.
func (m *Monitor) WatchTask(ctx context.Context, req *teamv1.WatchTaskRequest) (iter.Seq2[*teamv1.WatchTaskResponse, error], error) {
	who, err := m.whose(ctx)
	if err != nil {
		return nil, err
	}
	root, scope := agent.SplitTask(req.GetTaskId())
	key := a2a.Key{Owner: who.Owner(), ID: root}
	leave, err := m.h.SitAtTask(key)
	if err != nil {
		return nil, err
	}
	w := &taskWatch{m: m, key: key, scope: scope, account: who.Account, run: newRun(root, "", journal.Whole), after: req.GetAfter()}
	if err := w.begin(ctx, req.GetTaskId()); err != nil {
		leave()
		return nil, err
	}
	return closing(ctx, leave, w.tell), nil
}

// closing is a sequence that gives something back at its end, or when ctx ends
// before it has begun.
func closing[T any](ctx context.Context, leave func(), tell func(context.Context, func(T, error) bool)) iter.Seq2[T, error] {
	stop := context.AfterFunc(ctx, leave)
	return func(yield func(T, error) bool) {
		if !stop() {
			var none T
			yield(none, context.Cause(ctx))
			return
		}
		defer leave()
		tell(ctx, yield)
	}
}
