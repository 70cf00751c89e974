package metrics

import (
	"context"
	"runtime"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/engine"
)

const (
	// readEvery is the minimum interval between two readings of the store: several servers may scrape.
	readEvery = 5 * time.Second
	// readTimeout is the timeout of a reading.
	readTimeout = 3 * time.Second
)

// reading is a value of the store that instruments observe. It is read at most every five seconds.
type reading[T any] struct {
	read func(context.Context) (T, error)
	fail func(error)

	mu   sync.Mutex
	at   time.Time // when last was read; guarded by mu
	last T         // guarded by mu
	err  error     // with which it could not be read; guarded by mu
}

// openStates are the states of tasks that have not ended, with their labels.
var openStates = map[a2av1.TaskState]string{
	a2av1.TaskState_TASK_STATE_SUBMITTED: "submitted", a2av1.TaskState_TASK_STATE_WORKING: "working",
	a2av1.TaskState_TASK_STATE_INPUT_REQUIRED: "input_required", a2av1.TaskState_TASK_STATE_AUTH_REQUIRED: "auth_required",
}

// ObserveBacklog observes what waits in a store whenever m is read, at most every five seconds. read
// reads it, shares are the limits of accounts, now is the time of the store, and fail is called with errors of read, after which there are no values.
// stop ends the observation. It does nothing if m is nil.
func ObserveBacklog(m metric.Meter, read func(context.Context) (engine.Backlog, error), shares engine.Shares, now func() time.Time, fail func(error)) (stop func(), err error) {
	if m == nil {
		return func() {}, nil
	}
	b := &reading[engine.Backlog]{read: read, fail: fail}
	i := &instruments{Meter: m}
	tasks := i.gauge("team_server.tasks.open", "{task}", "Tasks that have not ended, by state, of all replicas; 100,000 at most.")
	since := i.age("team_server.tasks.open.oldest.age", "Longest time since the status of an open task changed, by state; for input_required, the age of the oldest question.")
	due := i.gauge("team_server.queue.due", "{run}", "Runs that are due and wait for a slot, of all replicas, without those that limits of their account or principal hold back; 100,000 at most.")
	dueAge := i.age("team_server.queue.oldest.age", "Age of the oldest run that waits for a slot; 0 if none does.")
	claimed := i.gauge("team_server.queue.claimed", "{run}", "Runs that a replica drives, of all replicas.")
	push := i.gauge("team_server.push.backlog", "{webhook}", "Webhooks with a notification that is due, or has failed and is tried again, of all replicas; 100,000 at most.")
	pushAge := i.age("team_server.push.oldest.age", "Age of the oldest waiting notification, since its first failed attempt or, before any attempt, since it was due; 0 if none waits.")
	if err := i.err(); err != nil {
		return func() {}, err
	}
	r, err := m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		last, err := b.current(ctx)
		now := now()
		if err != nil {
			return nil //nolint:nilerr // fail has reported it, and other instruments have values
		}
		for state, label := range openStates {
			of := metric.WithAttributes(attribute.String("state", label))
			o.ObserveInt64(tasks, last.Open[state].Count, of)
			o.ObserveFloat64(since, age(now, last.Open[state]), of)
		}
		wait := last.Claimable(shares)
		o.ObserveInt64(due, min(wait.Count, engine.MaxBacklog))
		o.ObserveFloat64(dueAge, age(now, wait))
		o.ObserveInt64(claimed, last.Running())
		o.ObserveInt64(push, last.Push.Count)
		o.ObserveFloat64(pushAge, age(now, last.Push))
		return nil
	}, tasks, since, due, dueAge, claimed, push, pushAge)
	if err != nil {
		return func() {}, err
	}
	return func() { _ = r.Unregister() }, nil
}

// age returns the age of the oldest entry in seconds. It returns 0 if nothing waits.
func age(now time.Time, w engine.Waiting) float64 {
	if w.Count == 0 || w.Oldest.IsZero() {
		return 0
	}
	return max(now.Sub(w.Oldest), 0).Seconds()
}

// current returns the value. fail has been called with an error.
func (r *reading[T]) current(ctx context.Context) (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() || time.Since(r.at) >= readEvery {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		r.last, r.err = r.read(ctx)
		r.at = time.Now()
		if r.err != nil {
			r.fail(r.err)
		}
	}
	return r.last, r.err
}

// ObserveBuild observes the version of the program. It does nothing if m is nil.
func ObserveBuild(m metric.Meter, version string) error {
	if m == nil {
		return nil
	}
	of := metric.WithAttributes(attribute.String("version", version), attribute.String("go_version", runtime.Version()))
	_, err := m.Int64ObservableGauge("team_server.build.info", metric.WithDescription("1; its labels name the version of the program."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(1, of)
			return nil
		}))
	return err
}
