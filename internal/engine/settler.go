package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// maxFailures is how many drives in a row may fail; the next failure ends the run.
	maxFailures = 3
	// backoff is how long a run waits after a failed or stopped drive. It doubles with each further
	// stopped drive up to maxBackoff, and with each failure beyond maxFailures.
	backoff    = time.Second
	maxBackoff = 30 * time.Second
	// maxStops is how many drives in a row are stopped before the run is parked.
	maxStops = 10
	// progress is the duration after which a stopped drive counts as having made progress.
	progress = time.Minute
	// settleTimeout bounds each call that claims, parks, ends or releases runs, so that a store
	// that hangs does not block the engine.
	settleTimeout = 10 * time.Second
)

// Settler is what engines have in common: it drives claimed runs, settles each according to how its drive returned,
// and keeps the leases of its replica, which fence the runs. It is safe for concurrent use.
type Settler struct {
	Config

	stopping chan struct{} // closed by Stop

	mu       sync.Mutex
	failures map[string]int   // consecutive failed drives, by root task id; guarded by mu
	stops    map[string]int   // consecutive stopped drives, by root task id; guarded by mu
	logged   map[string]entry // conditions that are logged at intervals; guarded by mu
	tenure   *tenure          // the current one; guarded by mu
}

// NewSettler returns a settler with defaults for what is not set. Call Begin before Drive.
func NewSettler(cfg Config) *Settler {
	if cfg.Slots <= 0 {
		cfg.Slots = DefaultSlots
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Settler{Config: cfg, stopping: make(chan struct{}), failures: map[string]int{}, stops: map[string]int{}, logged: map[string]entry{}}
}

// Stop ends the repetition of failed releases. Call it once, when the engine stops.
func (e *Settler) Stop() { close(e.stopping) }

// Drive drives a claimed run and then parks, releases, suspends or ends it, depending on the result. ctx is that of
// Tenure at the time of the claim.
func (e *Settler) Drive(ctx context.Context, c runs.Claim, drive Drive) (next Next) {
	began := time.Now()
	park, err := e.safely(ctx, c, drive)
	if err == nil {
		next, err = e.park(ctx, c, park)
	}
	switch {
	case err == nil:
		e.forget(c.Root)
		return next
	case errors.Is(err, agent.ErrFenced):
		return e.stopped(ctx, c, began, "run was lost", "its journal does not accept new events", err)
	case errors.Is(err, runs.ErrStorage):
		return e.stopped(ctx, c, began, "run stopped: the store does not accept events", "the store does not accept its events", err)
	case errors.Is(context.Cause(ctx), agent.ErrShutdown):
		return e.release(ctx, c, time.Time{})
	case errors.Is(err, runs.ErrNewer):
		return e.releaseToNewer(ctx, c, err)
	default:
		return e.failed(ctx, c, err)
	}
}

// stopped releases a run whose drive was stopped by the store or by another owner. A run that is
// stopped repeatedly, while the store works for other runs, is parked with a reason.
func (e *Settler) stopped(ctx context.Context, c runs.Claim, began time.Time, what, why string, err error) Next {
	n := e.countStop(c.Root, time.Since(began) >= progress)
	e.Rarely(c.Root+what, func(skipped int) {
		e.Log.Warn(what, zap.String("task", c.Root), zap.Int64("epoch", c.Epoch), zap.Int("times", n), zap.Int("not_logged", skipped), zap.Error(err))
	})
	if n >= maxStops && e.suspend(ctx, c, n, why, err) {
		return Next{}
	}
	return e.release(ctx, c, e.Leases.Now().Add(min(backoff<<min(max(n-1, 0), maxStops), maxBackoff))) // the store refuses this if another owner has the run
}

// releaseToNewer releases a run that only a later version of the program can drive. Replicas of that version
// claim it between the attempts of this one, which become rarer.
func (e *Settler) releaseToNewer(ctx context.Context, c runs.Claim, err error) Next {
	n := e.countStop(c.Root, false)
	e.Rarely(c.Root+"newer", func(skipped int) {
		e.Log.Warn("run released: it needs a later version of team-server", zap.String("task", c.Root), zap.Int("not_logged", skipped), zap.Error(err))
	})
	return e.release(ctx, c, e.Leases.Now().Add(min(backoff<<min(max(n-1, 0), maxStops), maxBackoff)))
}

// suspend parks a run with a reason for its readers, and reports whether that succeeded.
func (e *Settler) suspend(ctx context.Context, c runs.Claim, n int, why string, cause error) bool {
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	reason := fmt.Sprintf("The task is parked, because running it failed %d times in a row: %s. "+
		"Send it a message to try again, or cancel it; see the server log for details.", n, why)
	if err := e.Leases.Suspend(settle, c, reason); err != nil {
		e.Rarely(c.Root+"suspend", func(int) { e.Log.Error("cannot park a run", zap.String("task", c.Root), zap.Error(err)) })
		return false
	}
	e.forget(c.Root)
	e.Log.Error("run is parked; a message to its task, a cancel, or a restart of a server with a SQLite store triggers another attempt",
		zap.String("task", c.Root), zap.Int("times", n), zap.Error(cause))
	return true
}

// safely calls drive and turns a panic into an error, which it logs with the stack.
func (e *Settler) safely(ctx context.Context, c runs.Claim, drive Drive) (park runs.Park, err error) {
	defer func() {
		if p := recover(); p != nil {
			e.Log.Error("panic while driving a run", zap.String("task", c.Root), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			err = fmt.Errorf("drive %s: panic: %v", c.Root, p)
		}
	}()
	return drive(ctx, c)
}

// failed schedules another attempt for a run whose drive failed. After more than maxFailures
// failures in a row it ends the run, or parks it if the end cannot be recorded either.
func (e *Settler) failed(ctx context.Context, c runs.Claim, err error) Next {
	n := e.count(c.Root)
	if n <= maxStops {
		e.Log.Error("driving a run failed", zap.String("task", c.Root), zap.Int("times", n), zap.Error(err))
	}
	if n > maxFailures {
		ended := e.end(ctx, c, err)
		if ended || n >= maxStops && e.suspend(ctx, c, n, "its journal is damaged", err) {
			e.forget(c.Root)
			return Next{Ended: ended}
		}
	}
	return e.release(ctx, c, e.Leases.Now().Add(backoff<<max(min(n-maxFailures, 5), 0)))
}

// end records that a run that cannot be driven has failed, and reports whether that succeeded.
func (e *Settler) end(ctx context.Context, c runs.Claim, cause error) bool {
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	ended := &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_FAILED, Error: agent.AsError(cause).Proto()}
	err := c.Journal.Append(settle, &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: ended}})
	switch {
	case errors.Is(err, runs.ErrTerminal):
		err = nil // the run ended before its drive failed
	case err == nil && e.Ended != nil:
		e.Ended(settle)
	}
	if err == nil {
		err = c.Journal.Commit(settle)
	}
	if err == nil {
		_, err = e.Leases.Park(settle, c, runs.Park{Done: true})
	}
	if err != nil {
		e.Rarely(c.Root+"end", func(int) { e.Log.Error("cannot end a run", zap.String("task", c.Root), zap.Error(err)) })
	}
	return err == nil
}

// park releases a run whose drive returned without an error. A store that does not answer in time
// is reported as runs.ErrStorage, so that it does not count as a failure of the run.
func (e *Settler) park(ctx context.Context, c runs.Claim, p runs.Park) (Next, error) {
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	next, err := e.Leases.Park(settle, c, p)
	if err != nil && settle.Err() != nil {
		return Next{}, fmt.Errorf("park %s: %w: %w", c.Root, runs.ErrStorage, err)
	}
	return next, err
}

// release makes a claimed run due again at a time. It repeats a failed call until the engine stops:
// without it the store assigns the run to this replica until the replica's lease expires. Next is when that is over,
// or when the lease of another replica that has the run may be.
func (e *Settler) release(ctx context.Context, c runs.Claim, at time.Time) Next {
	for {
		settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		next, err := e.Leases.Release(settle, c, at)
		cancel()
		if err == nil {
			return next
		}
		if errors.Is(err, agent.ErrFenced) {
			return Next{At: e.Leases.Now().Add(e.Leases.Lease())}
		}
		e.Rarely(c.Root+"release", func(int) { e.Log.Error("cannot release a run", zap.String("task", c.Root), zap.Error(err)) })
		select {
		case <-time.After(claimRetry):
		case <-e.stopping:
			return Next{At: e.Leases.Now().Add(e.Leases.Lease())}
		}
	}
}

// count adds a failed drive of root and returns the number of failures in a row.
func (e *Settler) count(root string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failures[root]++
	return e.failures[root]
}

// countStop adds a stopped drive of root and returns the number of stops in a row. If gotOn is
// true, the drive made progress and the count starts again. It returns 0 while the store accepts no
// writes at all, because then the run is not the cause.
func (e *Settler) countStop(root string, gotOn bool) int {
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

// forget resets the counters of root and what was logged about it.
func (e *Settler) forget(root string) {
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

// entry records when a condition was last logged and how often it has occurred since then.
type entry struct {
	at      time.Time
	skipped int
}

// Rarely calls log for a condition that may occur every second, at most once per logEvery for the
// same key. The argument of log is the number of occurrences that were not logged.
func (e *Settler) Rarely(what string, log func(skipped int)) {
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

// settled clears a logged condition and reports whether it had been logged.
func (e *Settler) settled(what string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, logged := e.logged[what]
	delete(e.logged, what)
	return logged
}
