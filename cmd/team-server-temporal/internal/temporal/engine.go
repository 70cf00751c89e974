// Package temporal is an engine that lets Temporal schedule the runs: a workflow for each root task, and an activity for
// each drive. The store remains the truth, and its leases alone fence the runs: a Temporal that hangs, is gone or
// forgets does not change what is being driven, and after two leases servers drive on their own what it does not.
package temporal

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// callTimeout bounds each call of the store, and signalTimeout each signal to Temporal.
	callTimeout, signalTimeout = 10 * time.Second, 3 * time.Second
	// slotWait is how long a run waits for which there is no slot.
	slotWait = time.Second
	// startRetry is how long Serve waits before it tries again to start a worker.
	startRetry = 2 * time.Second
	// stopTimeout is how long a worker that stops waits for its drives. Serve cancels them at the same time.
	stopTimeout = 20 * time.Second
	// cachedWorkflows is how many waiting workflows a process keeps in memory, each with a goroutine. Others are
	// replayed, from a dozen events.
	cachedWorkflows = 64
	// stickyTimeout is how long a workflow waits for the process that has it in memory, before another one replays it.
	stickyTimeout = 2 * time.Second
	// The numbers of open polls for tasks. A process that freezes takes a task with each, for a heartbeatTimeout; with
	// too few of them runs wait, because a task queue has four partitions.
	fewestPolls, firstPolls, mostPolls = 2, 5, 16
)

// Engine drives runs when Temporal says so. It is safe for concurrent use.
type Engine struct {
	*engine.Settler
	client           client.Client
	namespace, queue string
	ui               string        // of Temporal, "" if it is not known
	wake             chan struct{} // holds one signal: runs may be due

	mu         sync.Mutex
	room       *engine.Room // the slots; guarded by mu
	claims     int          // slots that are free in room and kept for runs that are being claimed; guarded by mu
	attributed atomic.Bool  // the namespace has the search attributes
	looked     time.Time    // when that was last looked up; only tell uses it

	driving sync.WaitGroup // the drives that Temporal does not know of
	drive   engine.Drive   // set by Serve
}

var _ engine.Engine = (*Engine)(nil)

// New returns an engine that does nothing until Serve is called. It does not connect. The error says which file of the
// settings cannot be read.
func New(c engine.Config, t *teamv1.TemporalSettings) (engine.Engine, error) {
	s := engine.NewSettler(c)
	opts, err := optionsOf(t, s.Log)
	if err != nil {
		return nil, err
	}
	opts.Identity = s.Replica // not the process and the machine
	if s.Meter != nil {
		opts.MetricsHandler = opentelemetry.NewMetricsHandler(opentelemetry.MetricsHandlerOptions{
			Meter: s.Meter, UseMonotonicCounters: true, OnError: func(err error) { s.Log.Warn("a metric of Temporal's client is missing", zap.Error(err)) },
		})
	}
	opened, err := client.NewLazyClient(opts)
	if err != nil {
		return nil, fmt.Errorf("server.engine.temporal: %w", err)
	}
	return &Engine{Settler: s, client: opened, namespace: t.GetNamespace(), queue: t.GetTaskQueue(), ui: t.GetUi(), wake: make(chan struct{}, 1), room: engine.NewRoom(s.Slots, s.Shares)}, nil
}

// Kind implements engine.Engine.
func (*Engine) Kind() string { return engine.TemporalEngine }

// Wake implements engine.Engine. It tells Temporal of whatever is due.
func (e *Engine) Wake() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Full implements engine.Engine.
func (e *Engine) Full() bool { return e.free() <= 0 }

// URL implements engine.Engine.
func (e *Engine) URL(root string) string {
	if e.ui == "" {
		return ""
	}
	return strings.TrimSuffix(e.ui, "/") + "/namespaces/" + url.PathEscape(e.namespace) + "/workflows/" + url.PathEscape(root)
}

// free returns the number of free slots.
func (e *Engine) free() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.room.Free() - e.claims
}

// reserve keeps a slot for a run that is to be claimed, unless all are in use.
func (e *Engine) reserve() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.room.Free() <= e.claims {
		return false
	}
	e.claims++
	return true
}

// claimed ends a reservation. If a run has been claimed, its owner gets the slot.
func (e *Engine) claimed(c runs.Claim) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.claims--
	if c.Journal != nil {
		e.room.Take(c.Owner)
	}
}

// copyRoom returns a copy of the room.
func (e *Engine) copyRoom() *engine.Room {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.room.Clone()
}

// Serve implements engine.Engine. Temporal may be out of reach, from the start or at any time.
func (e *Engine) Serve(ctx context.Context, drive engine.Drive) error {
	e.drive = drive
	drives, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	e.Begin(drives)
	defer e.client.Close()
	defer e.driving.Wait()
	var wg sync.WaitGroup
	wg.Go(func() { e.Beat(drives) })
	wg.Go(func() { e.tell(ctx) })
	if !e.Front {
		wg.Go(func() { e.rescue(ctx) })
		wg.Go(func() { e.work(ctx) })
	}
	<-ctx.Done()
	e.Stop()
	cancel(agent.ErrShutdown)
	wg.Wait()
	return nil
}

// work takes tasks of Temporal until ctx ends.
func (e *Engine) work(ctx context.Context) {
	for ctx.Err() == nil {
		failed := make(chan error, 1)
		w := e.worker(failed)
		err := w.Start()
		if err == nil {
			select {
			case <-ctx.Done():
			case err = <-failed:
			}
			w.Stop()
		}
		if err != nil && ctx.Err() == nil {
			e.Rarely("work", func(skipped int) {
				e.Log.Warn("Temporal gives this server no runs; what is due is driven after two leases", zap.Int("not_logged", skipped), zap.Error(err))
			})
			_ = agent.Sleep(ctx, startRetry)
		}
	}
}

// worker returns a worker that sends to failed if it cannot go on.
func (e *Engine) worker(failed chan<- error) worker.Worker {
	worker.SetStickyWorkflowCacheSize(cachedWorkflows)
	polls := worker.NewPollerBehaviorAutoscaling(worker.PollerBehaviorAutoscalingOptions{
		MinimumNumberOfPollers: fewestPolls, InitialNumberOfPollers: firstPolls, MaximumNumberOfPollers: mostPolls,
	})
	w := worker.New(e.client, e.queue, worker.Options{
		MaxConcurrentActivityExecutionSize: e.Slots, WorkerStopTimeout: stopTimeout, StickyScheduleToStartTimeout: stickyTimeout,
		ActivityTaskPollerBehavior: polls, WorkflowTaskPollerBehavior: polls,
		OnFatalError: func(err error) {
			select {
			case failed <- err:
			default:
			}
		},
	})
	w.RegisterWorkflowWithOptions(run, workflow.RegisterOptions{Name: workflowName})
	w.RegisterActivityWithOptions(e.activity, activity.RegisterOptions{Name: activityName})
	return w
}

// errNotClaimed is what Temporal learns of an activity that has failed. The texts of errors stay in the log of the server.
var errNotClaimed = errors.New("the run cannot be claimed now; see the log of the server")

// activity drives a run, if it is due. Temporal learns with heartbeats that it still does; a drive goes on when
// Temporal has given it up, because the store has not.
func (e *Engine) activity(ctx context.Context, root string) (outcome, error) {
	ctx = context.WithoutCancel(ctx)
	beating, stop := context.WithCancel(ctx)
	defer stop()
	var gone atomic.Bool
	go e.heartbeat(beating, activity.GetInfo(ctx).TaskToken, &gone)
	next, owner, err := e.claimAndDrive(ctx, root)
	switch {
	case err != nil:
		e.Rarely("claim", func(skipped int) {
			e.Log.Warn("cannot claim a run", zap.String("task", root), zap.Int("not_logged", skipped), zap.Error(err))
		})
		return outcome{}, errNotClaimed
	case gone.Load(): // the result goes nowhere; TakeDue returns a run that has not ended when it is due
		if next.Ended {
			e.signalEnd(ctx, root)
		}
		return outcome{}, nil
	}
	o := outcome{Ended: next.Ended, State: e.stateOf(ctx, runs.Key{Owner: owner, ID: root})}
	if next.At.IsZero() {
		return o, nil
	}
	if err := e.Runs.Scheduled(ctx, root, next.At); err != nil {
		e.Log.Debug("a run that is scheduled may be scheduled twice", zap.String("task", root), zap.Error(err))
	}
	o.Again, o.After = true, next.At.Sub(e.Leases.Now())
	return o, nil
}

// heartbeat tells Temporal until ctx ends that a drive goes on, or until Temporal has given it up, which it reports in gone.
// The SDK's own heartbeats are throttled and hide errors.
func (e *Engine) heartbeat(ctx context.Context, token []byte, gone *atomic.Bool) {
	tick := time.NewTicker(heartbeatTimeout / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		call, cancel := context.WithTimeout(ctx, heartbeatTimeout/3)
		err := e.client.RecordActivityHeartbeat(call, token)
		cancel()
		if unknown := (*serviceerror.NotFound)(nil); errors.As(err, &unknown) {
			gone.Store(true) // another worker will find that the run is held, or that it has ended
			return
		}
	}
}

// claimAndDrive drives a run, if it can be claimed. It returns the owner of a run that it has driven.
func (e *Engine) claimAndDrive(ctx context.Context, root string) (next engine.Next, owner string, err error) {
	tenure := e.Tenure()
	if tenure.Err() != nil {
		return engine.Next{}, "", context.Cause(tenure)
	}
	if !e.reserve() {
		return engine.Next{At: e.Leases.Now().Add(slotWait)}, "", nil
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	c, next, err := e.Runs.ClaimRun(call, e.Replica, root, e.copyRoom())
	cancel()
	e.claimed(c)
	if err != nil || c.Journal == nil {
		return next, "", err
	}
	next = e.Drive(tenure, c, e.drive)
	e.mu.Lock()
	e.room.Give(c.Owner)
	limited := e.room.LimitedIn(identity.AccountOf(c.Owner))
	e.mu.Unlock()
	if limited {
		e.Wake() // a run of the same account may be driven now
	}
	return next, c.Owner, nil
}

// rescue drives what has been due for two leases: Temporal is out of reach or has lost it, or it waits for a
// process that is frozen. It uses slots that are free.
func (e *Engine) rescue(ctx context.Context) {
	lease := e.Leases.Lease()
	for agent.Sleep(ctx, lease/2) == nil {
		free := e.free()
		if free <= 0 {
			continue
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		overdue, err := e.Runs.Overdue(call, e.copyRoom(), e.Leases.Now().Add(-2*lease), free)
		cancel()
		if err != nil && ctx.Err() == nil {
			e.Rarely("overdue", func(skipped int) {
				e.Log.Warn("cannot read the runs that are overdue", zap.Int("not_logged", skipped), zap.Error(err))
			})
		}
		for _, k := range overdue {
			e.driving.Go(func() { e.driveOverdue(ctx, k.ID) })
		}
	}
}

// driveOverdue drives a run without Temporal. A workflow that waits for the run learns of its end.
func (e *Engine) driveOverdue(ctx context.Context, root string) {
	next, _, err := e.claimAndDrive(ctx, root)
	if err != nil {
		e.Rarely("claim", func(skipped int) {
			e.Log.Warn("cannot claim a run that is overdue", zap.String("task", root), zap.Int("not_logged", skipped), zap.Error(err))
		})
		return
	}
	if next.Ended {
		e.signalEnd(context.WithoutCancel(ctx), root)
	}
}

// signalEnd has a workflow that waits for a run ask for it, because the run has ended.
func (e *Engine) signalEnd(ctx context.Context, root string) {
	call, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	_ = e.client.SignalWorkflow(call, root, "", signalName, nil) // without a workflow there is nothing to end
}
