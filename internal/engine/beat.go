package engine

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/pkg/agent"
)

// beat says that the replica lives, until ctx ends. When it has not come through
// for two beats the runs are given up, well before anybody else may take them; also
// when it comes through after its lease, as of a process that was stopped for a while.
func (e *Engine) beat(ctx context.Context) {
	every := e.Leases.Lease() / 3
	if every <= 0 {
		return // nobody else can take them
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
			e.rarely(beating, func(int) {
				e.Log.Warn("the store does not hear of this replica", zap.Duration("since", time.Since(p.heard)), zap.Error(err))
			})
		} else {
			_ = e.settled(beating)
		}
		if p.beaten(before, time.Now(), err == nil) {
			e.renew(ctx)
		}
	}
}

// beating is the key in Engine.logged for failed heartbeats.
const beating = "beat"

// pulse is when a replica was heard of, and when its runs were given up.
type pulse struct {
	every          time.Duration
	heard, renewed time.Time
}

// beaten notes a beat from its begin to now, and reports whether the runs must be
// given up: their lease ends soon, or was over before the beat came through.
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

// say makes one beat; the next one must not wait for it.
func (e *Engine) say(ctx context.Context, every time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, every)
	defer cancel()
	return e.Leases.Beat(ctx, e.Replica)
}

// renew ends the tenure, if there is one, and with it the runs claimed in it, and
// begins the next.
func (e *Engine) renew(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tenure != nil {
		e.tenure.end(agent.ErrFenced)
	}
	e.tenure = &tenure{}
	e.tenure.ctx, e.tenure.end = context.WithCancelCause(ctx)
}
