// Package engine drives the runs that are due. It claims them, runs each in a goroutine of its own,
// and releases each according to how its drive returned. It asks the store for due runs when Wake
// is called, when a slot becomes free, and at the time that the store named in its last answer.
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

// DefaultSlots is the number of runs driven at the same time if Config.Slots is not set.
const DefaultSlots = 256

// claimRetry is how long the engine waits before it repeats a failed claim or release.
const claimRetry = time.Second

// Config sets up an Engine.
type Config struct {
	// Leases hands out due runs. Required.
	Leases Leases
	// Slots limits the number of runs driven at the same time; 0 means DefaultSlots. A parked run
	// needs no slot.
	Slots int
	// Shares says how accounts share the slots; nil means that all accounts are equal.
	Shares Shares
	// Replica names this process in its claims. It must differ from the name of every other
	// process, including earlier ones.
	Replica string
	// Ended is called when the engine has ended a run that cannot be driven. It may be nil.
	Ended func(ctx context.Context)
	// Log receives panics and errors of drives; nil means no log.
	Log *zap.Logger
}

// Drive continues a claimed run until it ends, has to wait, or ctx ends. The cause of ctx is
// agent.ErrShutdown when the engine stops and agent.ErrFenced when the replica has lost its leases.
type Drive = func(ctx context.Context, c a2a.Claim) (a2a.Park, error)

// Engine drives due runs. It is safe for concurrent use.
type Engine struct {
	Config

	wake     chan struct{} // holds one signal: a run may be due, or a slot is free
	stopping chan struct{} // closed when Serve ends

	mu       sync.Mutex
	room     *Room            // the slots; guarded by mu
	starved  bool             // due runs may be waiting for a slot; guarded by mu
	freed    bool             // a slot became free since the room was last copied; guarded by mu
	failures map[string]int   // consecutive failed drives, by root task id; guarded by mu
	stops    map[string]int   // consecutive stopped drives, by root task id; guarded by mu
	logged   map[string]entry // conditions that are logged at intervals; guarded by mu
	tenure   *tenure          // the current one; guarded by mu
}

// tenure is a period in which the heartbeats of the replica succeed. Its context is the parent of
// the runs claimed in it, so that they end with it.
type tenure struct {
	ctx context.Context
	end context.CancelCauseFunc
}

// New returns an engine that does nothing until Serve is called.
func New(cfg Config) *Engine {
	if cfg.Slots <= 0 {
		cfg.Slots = DefaultSlots
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Engine{Config: cfg, room: NewRoom(cfg.Slots, cfg.Shares), wake: make(chan struct{}, 1), stopping: make(chan struct{}), failures: map[string]int{}, stops: map[string]int{}, logged: map[string]entry{}}
}

// Wake tells the engine that a run may be due. Call it after the change that makes the run due is
// in the store. It does not block, and calls in quick succession count as one.
func (e *Engine) Wake(string) { e.signal() }

// signal makes Serve claim again. It does not block.
func (e *Engine) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Serve claims and drives due runs until ctx ends. Then it cancels the runs with the cause
// agent.ErrShutdown and returns nil when all drives have returned. It must be called only once.
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
			select {
			case <-e.wake: // the same claim is for both
			default:
			}
		}
	}
}

// claim claims as many due runs as there are free slots and starts them. If bounded is true, no
// further run is due before wait has passed; otherwise the engine waits for a signal.
func (e *Engine) claim(ctx context.Context, wg *sync.WaitGroup, drive Drive) (wait time.Duration, bounded bool) {
	room, runs := e.free()
	if room.Free() == 0 || ctx.Err() != nil {
		return 0, false // the run that frees a slot signals
	}
	free := room.Free()
	claims, next, err := e.ask(ctx, room)
	if err != nil {
		if ctx.Err() == nil {
			e.rarely(claiming, func(skipped int) {
				e.Log.Error("cannot claim runs", zap.Int("not_logged", skipped), zap.Error(err))
			})
		}
		return claimRetry, true
	}
	if e.settled(claiming) {
		e.Log.Warn("claiming runs works again")
	}
	full := len(claims) == free
	e.take(claims, full || room.Waiting)
	for _, c := range claims {
		wg.Go(func() { e.done(c, e.run(runs, c, drive)) })
	}
	if full || next.IsZero() {
		return 0, false
	}
	return max(next.Sub(e.Leases.Now()), 0), true
}

// claiming is the key in Engine.logged for failed claims.
const claiming = "claim"

// settled clears a logged condition and reports whether it had been logged.
func (e *Engine) settled(what string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, logged := e.logged[what]
	delete(e.logged, what)
	return logged
}

// ask claims runs. It has a timeout, because a store that hangs must not block the engine.
func (e *Engine) ask(ctx context.Context, room *Room) ([]a2a.Claim, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	return e.Leases.Claim(ctx, e.Replica, room)
}

// Full reports whether all slots are in use, so that a new run would have to wait.
func (e *Engine) Full() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.room.Free() == 0
}

// free returns a copy of the room and the context for runs that are claimed now. If no slot is free,
// done signals the engine when one becomes free.
func (e *Engine) free() (*Room, context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.starved, e.freed = e.room.Free() == 0, false
	return e.room.Clone(), e.tenure.ctx
}

// take gives slots to claimed runs. If more is true, further runs may be due, and the next free slot
// causes another claim.
func (e *Engine) take(claims []a2a.Claim, more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range claims {
		e.room.Take(c.Owner)
	}
	if e.freed && more {
		e.signal() // a slot became free after free counted them
	}
	e.starved = more
}

// done frees the slot of a run, and signals the engine if the run may be due again, or if other due runs
// may be waiting for a slot. It signals once, because each signal costs a claim.
func (e *Engine) done(c a2a.Claim, due bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.room.Give(c.Owner)
	e.freed = true
	if due || e.starved {
		e.starved = false
		e.signal()
	}
}
