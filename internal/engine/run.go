package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// maxFailures is how many drives in a row may go wrong before the run is ended.
	maxFailures = 3
	// backoff is the pause of a run after a failed drive; it doubles after each further
	// drive that is stopped in the same way, up to maxBackoff.
	backoff    = time.Second
	maxBackoff = 30 * time.Second
	// maxStops is how many drives in a row may be stopped before the run is parked.
	maxStops = 10
	// progress is the duration after which a drive counts as having made progress.
	progress = time.Minute
	// settleTimeout bounds releasing a run: a store that hangs must not keep the process.
	settleTimeout = 10 * time.Second
)

// run drives one claim and settles what became of it.
func (e *Engine) run(ctx context.Context, c a2a.Claim, drive Drive) {
	began := time.Now()
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
		e.stopped(ctx, c, began, "run was lost", "what is on record of it does not take what follows", err)
	case errors.Is(err, a2a.ErrStorage):
		e.stopped(ctx, c, began, "run stopped: the store does not record", "the store does not record it", err)
	case errors.Is(context.Cause(ctx), agent.ErrShutdown):
		e.release(ctx, c, time.Time{})
	default:
		e.failed(ctx, c, err)
	}
}

// stopped releases a run that the store or another owner has stopped. A run that is
// stopped repeatedly, while the store works for others, is parked.
func (e *Engine) stopped(ctx context.Context, c a2a.Claim, began time.Time, what, why string, err error) {
	n := e.countStop(c.Root, time.Since(began) >= progress)
	e.rarely(c.Root+what, func(skipped int) {
		e.Log.Warn(what, zap.String("task", c.Root), zap.Int64("epoch", c.Epoch), zap.Int("times", n), zap.Int("not_logged", skipped), zap.Error(err))
	})
	if n >= maxStops && e.suspend(ctx, c, n, why, err) {
		return
	}
	e.release(ctx, c, e.Leases.Now().Add(min(backoff<<min(max(n-1, 0), maxStops), maxBackoff))) // refused if another owner has it
	e.signal()
}

// suspend parks a run with a reason.
func (e *Engine) suspend(ctx context.Context, c a2a.Claim, n int, why string, cause error) bool {
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	reason := fmt.Sprintf("The task is parked: it could not be started %d times in a row, because %s. "+
		"Send it a message to have it tried again, or cancel it; the log of the server says more.", n, why)
	if err := e.Leases.Suspend(settle, c, reason); err != nil {
		e.rarely(c.Root+"suspend", func(int) { e.Log.Error("run cannot be parked", zap.String("task", c.Root), zap.Error(err)) })
		return false
	}
	e.forget(c.Root)
	e.Log.Error("run is parked: a message to its task, a cancel, or the next start of a server with a SQLite store has it tried again",
		zap.String("task", c.Root), zap.Int("times", n), zap.Error(cause))
	return true
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
	if n <= maxStops {
		e.Log.Error("drive went wrong", zap.String("task", c.Root), zap.Int("times", n), zap.Error(err))
	}
	if n > maxFailures {
		if e.end(ctx, c, err) || n >= maxStops && e.suspend(ctx, c, n, "what is on record of it is damaged", err) {
			e.forget(c.Root)
			return
		}
	}
	e.release(ctx, c, e.Leases.Now().Add(backoff<<max(min(n-maxFailures, 5), 0)))
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
		e.rarely(c.Root+"end", func(int) { e.Log.Error("run cannot be ended", zap.String("task", c.Root), zap.Error(err)) })
	}
	return err == nil
}

// park releases a run that has come to a stop. That the store did not answer in
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

// release releases a run that has not. While the store does not take that it is
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
		e.rarely(c.Root+"release", func(int) { e.Log.Error("run cannot be released", zap.String("task", c.Root), zap.Error(err)) })
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

// countStop counts a drive of root that was stopped; a drive that made progress
// restarts the count. While the store accepts no writes at all it does not count,
// because the run is not the cause.
func (e *Engine) countStop(root string, gotOn bool) int {
	if e.Leases.Ready() != nil {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if gotOn {
		e.stops[root] = 0
	}
	e.stops[root]++
	return e.stops[root]
}

func (e *Engine) forget(root string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.failures, root)
	delete(e.stops, root)
	for what := range e.logged {
		if strings.HasPrefix(what, root) {
			delete(e.logged, what)
		}
	}
}

// logEvery is the interval at which a repeated condition is logged.
const logEvery = 5 * time.Minute

// entry is when a condition was logged last and how often it has occurred since.
type entry struct {
	at      time.Time
	skipped int
}

// rarely logs a condition that may occur every second, at most once per logEvery.
func (e *Engine) rarely(what string, log func(skipped int)) {
	e.mu.Lock()
	last, known := e.logged[what]
	if known && time.Since(last.at) < logEvery {
		last.skipped++
		e.logged[what] = last
		e.mu.Unlock()
		return
	}
	e.logged[what] = entry{at: time.Now()}
	e.mu.Unlock()
	log(last.skipped)
}
