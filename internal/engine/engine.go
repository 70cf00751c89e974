// Package engine drives the runs that are due: it claims them, gives each a
// goroutine, and settles what became of it. It polls nothing by itself; the
// store says when to ask again.
package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// DefaultSlots is how many runs are driven at the same time where nothing else is set.
const DefaultSlots = 256

// claimRetry is how long the engine waits after the store refused a claim.
const claimRetry = time.Second

// Config sets up an Engine.
type Config struct {
	// Leases hands out due runs. Required.
	Leases Leases
	// Slots bounds the runs driven at the same time; 0 is DefaultSlots. A parked run needs none.
	Slots int
	// Replica names this process in its claims. No other process, nor an earlier
	// one, may have the same name.
	Replica string
	// Log gets panics and errors of drives; unset is none.
	Log *zap.Logger
}

// Drive continues a claimed run until it ends, waits, or ctx ends, whose cause
// is agent.ErrShutdown when the engine stops.
type Drive = func(ctx context.Context, c a2a.Claim) (a2a.Park, error)

// Engine drives due runs. Safe for concurrent use.
type Engine struct {
	Config

	wake     chan struct{} // holds one signal: something may be due or a slot is free
	stopping chan struct{} // closed when Serve ends

	mu       sync.Mutex
	busy     int              // runs being driven; guarded by mu
	starved  bool             // due runs may wait for a slot; guarded by mu
	failures map[string]int   // failed drives in a row, by root; guarded by mu
	stops    map[string]int   // drives in a row that the store has stopped, by root; guarded by mu
	logged   map[string]entry // entries that are logged at intervals; guarded by mu
	tenure   *tenure          // of the runs claimed now; guarded by mu
}

// tenure is a time in which the replica was heard of: what it has claimed in it
// is its own as long as it lasts.
type tenure struct {
	ctx context.Context
	end context.CancelCauseFunc
}

// New returns an engine that does nothing until Serve.
func New(cfg Config) *Engine {
	if cfg.Slots <= 0 {
		cfg.Slots = DefaultSlots
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Engine{Config: cfg, wake: make(chan struct{}, 1), stopping: make(chan struct{}), failures: map[string]int{}, stops: map[string]int{}, logged: map[string]entry{}}
}

// Wake says that a run may be due. It is called after what made it due is on
// record; it never blocks, and calls that come together count as one.
func (e *Engine) Wake(string) { e.signal() }

func (e *Engine) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Serve claims and drives due runs until ctx ends; then it cancels them with
// cause agent.ErrShutdown and returns nil when all have come back. Called once.
func (e *Engine) Serve(ctx context.Context, drive Drive) error {
	if e.Leases == nil {
		return fmt.Errorf("serve runs: the engine has no leases")
	}
	runs, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	e.renew(runs)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(agent.ErrShutdown)
	defer close(e.stopping)
	wg.Go(func() { e.beat(runs) })
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if wait, bounded := e.claim(ctx, &wg, drive); bounded {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.wake:
		case <-timer.C:
		}
	}
}

// claim starts what is due as far as slots are free. It returns how long
// nothing more can be due, where that is known.
func (e *Engine) claim(ctx context.Context, wg *sync.WaitGroup, drive Drive) (wait time.Duration, bounded bool) {
	free, runs := e.free()
	if free == 0 || ctx.Err() != nil {
		return 0, false // the run that frees a slot signals
	}
	claims, next, err := e.ask(ctx, free)
	if err != nil {
		if ctx.Err() == nil {
			e.rarely(claiming, func(skipped int) {
				e.Log.Error("runs cannot be claimed", zap.Int("not_logged", skipped), zap.Error(err))
			})
		}
		return claimRetry, true
	}
	if e.settled(claiming) {
		e.Log.Warn("runs are claimed again")
	}
	more := len(claims) == free
	e.take(len(claims), more)
	for _, c := range claims {
		wg.Go(func() {
			defer e.done()
			e.run(runs, c, drive)
		})
	}
	if more || next.IsZero() {
		return 0, false
	}
	return max(next.Sub(e.Leases.Now()), 0), true
}

// claiming is the key in Engine.logged for failed claims.
const claiming = "claim"

// settled reports, once, that a logged condition is over.
func (e *Engine) settled(what string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, logged := e.logged[what]
	delete(e.logged, what)
	return logged
}

// ask claims runs; a store that does not answer must not keep all others waiting.
func (e *Engine) ask(ctx context.Context, limit int) ([]a2a.Claim, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	return e.Leases.Claim(ctx, e.Replica, limit)
}

// Full reports whether as many runs are driven as may be, so that a new one would wait.
func (e *Engine) Full() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.busy >= e.Slots
}

// free returns how many slots are, and the context of what is claimed now; when
// there is none, the next one to be freed has a claim made.
func (e *Engine) free() (int, context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.starved = e.busy == e.Slots
	return e.Slots - e.busy, e.tenure.ctx
}

// take fills slots; more says that further runs may be due.
func (e *Engine) take(n int, more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy += n
	e.starved = more
	if more && e.busy < e.Slots {
		e.signal() // freed since they were counted
	}
}

// done frees a slot.
func (e *Engine) done() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy--
	if e.starved {
		e.starved = false
		e.signal()
	}
}
