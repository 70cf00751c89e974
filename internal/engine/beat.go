package engine

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/pkg/agent"
)

// beat says that the replica lives, until ctx ends. When it has not come through
// for two beats the runs are given up, well before anybody else may take them.
func (e *Engine) beat(ctx context.Context) {
	every := e.Leases.Lease() / 3
	if every <= 0 {
		return // nobody else can take them
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	heard := time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		before := time.Now()
		err := e.say(ctx, every)
		switch {
		case err == nil:
			heard = before
		case ctx.Err() != nil:
			return
		default:
			e.Log.Warn("the store does not hear of this replica", zap.Duration("since", time.Since(heard)), zap.Error(err))
		}
		if time.Since(heard) >= 2*every {
			e.renew(ctx)
		}
	}
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
