package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// maxFailures is how many drives in a row may go wrong before the run is ended.
	maxFailures = 3
	// backoff is how long a run rests after a drive that went wrong.
	backoff = time.Second
	// settleTimeout bounds giving up a run: a store that hangs must not keep the process.
	settleTimeout = 10 * time.Second
)

// run drives one claim and settles what became of it.
func (e *Engine) run(ctx context.Context, c a2a.Claim, drive Drive) {
	park, err := e.safely(ctx, c, drive)
	if err == nil {
		err = e.park(ctx, c, park)
	}
	switch {
	case err == nil:
		e.forget(c.Root)
		if !park.Done {
			e.signal() // due again, perhaps at once
		}
	case errors.Is(err, agent.ErrFenced):
		e.forget(c.Root)
		e.Log.Warn("run was lost", zap.String("task", c.Root), zap.Int64("epoch", c.Epoch), zap.Error(err))
		e.release(ctx, c, e.Leases.Now().Add(backoff)) // refused where somebody else has it
		e.signal()
	case errors.Is(err, a2a.ErrStorage):
		e.Log.Warn("run stopped: the store does not record", zap.String("task", c.Root), zap.Error(err))
		e.release(ctx, c, e.Leases.Now().Add(backoff))
		e.signal()
	case errors.Is(context.Cause(ctx), agent.ErrShutdown):
		e.release(ctx, c, time.Time{})
	default:
		e.failed(ctx, c, err)
	}
}

// safely drives; a panic is an error, and logged with its stack here.
func (e *Engine) safely(ctx context.Context, c a2a.Claim, drive Drive) (park a2a.Park, err error) {
	defer func() {
		if p := recover(); p != nil {
			e.Log.Error("drive panicked", zap.String("task", c.Root), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			err = fmt.Errorf("drive %s: panic: %v", c.Root, p)
		}
	}()
	return drive(ctx, c)
}

// failed gives the run another try later, or ends it: nothing works for ever.
func (e *Engine) failed(ctx context.Context, c a2a.Claim, err error) {
	n := e.count(c.Root)
	e.Log.Error("drive went wrong", zap.String("task", c.Root), zap.Int("times", n), zap.Error(err))
	if n > maxFailures && e.end(ctx, c, err) {
		e.forget(c.Root)
		return
	}
	e.release(ctx, c, e.Leases.Now().Add(backoff))
	e.signal()
}

// end puts the end of a run on record that cannot be driven.
func (e *Engine) end(ctx context.Context, c a2a.Claim, cause error) bool {
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	ended := &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_FAILED, Error: agent.AsError(cause).Proto()}
	err := c.Journal.Append(settle, &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: ended}})
	if errors.Is(err, a2a.ErrTerminal) {
		err = nil // it ended before it went wrong
	}
	if err == nil {
		err = c.Journal.Commit(settle)
	}
	if err == nil {
		err = e.Leases.Park(settle, c, a2a.Park{Done: true})
	}
	if err != nil {
		e.Log.Error("run cannot be ended", zap.String("task", c.Root), zap.Error(err))
	}
	return err == nil
}

// park gives up a run that has come to a stop. That the store did not answer in
// time is no fault of the run.
func (e *Engine) park(ctx context.Context, c a2a.Claim, p a2a.Park) error {
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	err := e.Leases.Park(settle, c, p)
	if err != nil && settle.Err() != nil {
		return fmt.Errorf("park %s: %w: %w", c.Root, a2a.ErrStorage, err)
	}
	return err
}

// release gives up a run that has not. While the store does not take that it is
// tried again: the store has the run as this replica's until then, or until the
// replica is not heard of any more.
func (e *Engine) release(ctx context.Context, c a2a.Claim, at time.Time) {
	for {
		settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		err := e.Leases.Release(settle, c, at)
		cancel()
		if err == nil || errors.Is(err, agent.ErrFenced) {
			return
		}
		e.Log.Error("run cannot be released", zap.String("task", c.Root), zap.Error(err))
		select {
		case <-time.After(claimRetry):
		case <-e.stopping:
			return
		}
	}
}

// count adds a drive of root that went wrong.
func (e *Engine) count(root string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failures[root]++
	return e.failures[root]
}

func (e *Engine) forget(root string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.failures, root)
}
