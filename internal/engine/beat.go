package engine

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/pkg/agent"
)

// Beat sends heartbeats for this replica until ctx ends, three per lease. After two missed
// heartbeats it ends the runs of this replica, well before another replica may claim them. It does
// the same when a heartbeat succeeds only after the lease has expired, for example because the
// process was suspended. It returns at once if leases do not expire.
func (e *Settler) Beat(ctx context.Context) {
	every := e.Leases.Lease() / 3
	if every <= 0 {
		return // leases do not expire: no other replica can claim the runs
	}
	if e.Front { // engines that claim runs have done that first
		_ = e.say(ctx, every)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	p := pulse{every: every, heard: time.Now()}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		before := time.Now()
		err := e.say(ctx, every)
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			e.Rarely(beating, func(int) {
				e.Log.Warn("cannot record the heartbeat of this replica", zap.Duration("since", time.Since(p.heard)), zap.Error(err))
			})
		} else {
			_ = e.settled(beating)
		}
		if p.beaten(before, time.Now(), err == nil) {
			e.Begin(ctx)
		}
	}
}

// beating is the key in Settler.logged for failed heartbeats.
const beating = "beat"

// pulse records when the last successful heartbeat began and when the tenure was last renewed.
type pulse struct {
	every          time.Duration
	heard, renewed time.Time
}

// beaten records a heartbeat that lasted from begin to now; ok says whether it succeeded. It
// reports whether the runs must be ended, because their lease expires soon or expired before the
// heartbeat succeeded.
func (p *pulse) beaten(begin, now time.Time, ok bool) (lost bool) {
	over := now.Sub(p.heard) >= 3*p.every && now.Sub(p.renewed) >= 3*p.every
	if ok {
		p.heard = begin
	}
	if lost = over || now.Sub(p.heard) >= 2*p.every; lost {
		p.renewed = now
	}
	return lost
}

// say sends one heartbeat. Its timeout is every, so that it does not delay the next one.
func (e *Settler) say(ctx context.Context, every time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, every)
	defer cancel()
	return e.Leases.Beat(ctx, e.Replica)
}

// tenure is a period in which the heartbeats of the replica succeed. Its context is the parent of
// the runs claimed in it, so that they end with it.
type tenure struct {
	ctx context.Context
	end context.CancelCauseFunc
}

// Begin ends the current tenure, if there is one, which cancels the runs claimed in it with the
// cause agent.ErrFenced, and begins a new one, which ends with ctx at the latest.
func (e *Settler) Begin(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tenure != nil {
		e.tenure.end(agent.ErrFenced)
	}
	e.tenure = &tenure{}
	e.tenure.ctx, e.tenure.end = context.WithCancelCause(ctx)
}

// Tenure returns the context of runs that are claimed from now on.
func (e *Settler) Tenure() context.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tenure.ctx
}
