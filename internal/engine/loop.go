package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
)

// claimRetry is how long the loop waits before it repeats a failed claim, and a Settler before it repeats a failed
// release.
const claimRetry = time.Second

// Loop is the engine of the stores: it claims due runs and drives them in this process.
type Loop struct {
	*Settler

	wake chan struct{} // holds one signal: a run may be due, or a slot is free

	mu      sync.Mutex
	room    *Room // the slots; guarded by mu
	starved bool  // due runs may be waiting for a slot; guarded by mu
	freed   bool  // a slot became free since the room was last copied; guarded by mu
}

var _ Engine = (*Loop)(nil)

// New returns a loop that does nothing until Serve is called.
func New(cfg Config) *Loop {
	s := NewSettler(cfg)
	return &Loop{Settler: s, room: NewRoom(s.Slots, s.Shares), wake: make(chan struct{}, 1)}
}

// Kind implements Engine.
func (*Loop) Kind() string { return StoreEngine }

// URL implements Engine.
func (*Loop) URL(string) string { return "" }

// Wake implements Engine. It claims whatever is due, or has others do so.
func (e *Loop) Wake() {
	if e.Front {
		e.Leases.AnnounceDue()
		return
	}
	e.signal()
}

// signal makes Serve claim again. It does not block.
func (e *Loop) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Serve implements Engine.
func (e *Loop) Serve(ctx context.Context, drive Drive) error {
	if e.Leases == nil {
		return errors.New("serve runs: the engine has no leases")
	}
	if e.Front {
		e.Beat(ctx)
		<-ctx.Done()
		return nil
	}
	due, unwatch := e.Leases.WatchDue()
	defer unwatch()
	runs, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	e.Begin(runs)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(agent.ErrShutdown)
	defer e.Stop()
	wg.Go(func() { e.Beat(runs) })
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
		case <-due:
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
func (e *Loop) claim(ctx context.Context, wg *sync.WaitGroup, drive Drive) (wait time.Duration, bounded bool) {
	room, runs := e.free()
	if room.Free() == 0 || ctx.Err() != nil {
		return 0, false // the run that frees a slot signals
	}
	free := room.Free()
	claims, next, err := e.ask(ctx, room)
	if err != nil {
		if ctx.Err() == nil {
			e.Rarely(claiming, func(skipped int) {
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
		wg.Go(func() { e.done(c, e.Drive(runs, c, drive)) })
	}
	if full || next.IsZero() {
		return 0, false
	}
	return max(next.Sub(e.Leases.Now()), 0), true
}

// claiming is the key in Settler.logged for failed claims.
const claiming = "claim"

// ask claims runs. It has a timeout, because a store that hangs must not block the engine.
func (e *Loop) ask(ctx context.Context, room *Room) ([]runs.Claim, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	return e.Leases.Claim(ctx, e.Replica, room)
}

// Full reports whether all slots are in use, so that a new run would have to wait.
func (e *Loop) Full() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.room.Free() == 0
}

// free returns a copy of the room and the context for runs that are claimed now. If no slot is free,
// done signals the engine when one becomes free.
func (e *Loop) free() (*Room, context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.starved, e.freed = e.room.Free() == 0, false
	return e.room.Clone(), e.Tenure()
}

// take gives slots to claimed runs. If more is true, further runs may be due, and the next free slot
// causes another claim.
func (e *Loop) take(claims []runs.Claim, more bool) {
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

// done frees the slot of a run, and signals the engine if the run is due again at a time, or if other due runs
// may be waiting for a slot. It signals once, because each signal costs a claim.
func (e *Loop) done(c runs.Claim, next Next) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.room.Give(c.Owner)
	e.freed = true
	if !next.At.IsZero() || e.starved {
		e.starved = false
		e.signal()
	}
}
