package temporal

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// Names of what workers of every version run. Histories refer to them: a workflow that decides something else gets
// another name, beside this one.
const (
	workflowName = "team-server.run"
	activityName = "team-server.drive"
	signalName   = "due"
)

const (
	// heartbeatTimeout is how long after the last heartbeat of a worker Temporal gives a run to another one. That one
	// waits for the lease of the run, if the worker still has it.
	heartbeatTimeout = 3 * time.Second
	// driveTimeout bounds a drive. It is longer than any: limits of runs are those of their teams.
	driveTimeout = 10 * 365 * 24 * time.Hour
	// lookEvery is after what time a workflow that waits has the store asked by itself: its run may have ended with
	// another engine, or been deleted.
	lookEvery = 24 * time.Hour
)

// outcome is what a workflow learns of a drive: no content, and nothing that grows.
type outcome struct {
	// Ended reports whether the run has ended.
	Ended bool `json:"ended,omitempty"`
	// Again reports whether the run is driven again after the time After, unless it is due earlier.
	Again bool          `json:"again,omitempty"`
	After time.Duration `json:"after,omitempty"`
	// State is the state of the task, if the namespace has the search attribute for it.
	State string `json:"state,omitempty"`
}

// run is the workflow of a run: it has the run driven whenever it is due. The store says what is due, and a drive of
// a run that is not only finds that out, so nothing depends on signals that are lost, repeated or late.
func run(ctx workflow.Context, root string) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: driveTimeout, HeartbeatTimeout: heartbeatTimeout,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 30 * time.Second},
	})
	due := workflow.GetSignalChannel(ctx, signalName)
	for {
		for due.ReceiveAsync(nil) { // the drive is for all of them
		}
		if hasState(ctx) {
			if err := setState(ctx, working); err != nil {
				return err
			}
		}
		var o outcome
		if err := workflow.ExecuteActivity(ctx, activityName, root).Get(ctx, &o); err != nil {
			return err
		}
		if err := setState(ctx, o.State); err != nil {
			return err
		}
		switch {
		case o.Ended:
			return nil
		case workflow.GetInfo(ctx).GetContinueAsNewSuggested():
			return workflow.NewContinueAsNewError(ctx, workflowName, root) // which begins with a drive
		}
		await(ctx, due, o)
	}
}

// await returns when a run is due, or after lookEvery.
func await(ctx workflow.Context, due workflow.ReceiveChannel, o outcome) {
	if o.Again && o.After <= 0 {
		return
	}
	wait := lookEvery
	if o.Again {
		wait = min(wait, o.After)
	}
	ctx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	s := workflow.NewSelector(ctx).AddReceive(due, func(c workflow.ReceiveChannel, _ bool) { c.Receive(ctx, nil) })
	s.AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {})
	s.AddFuture(workflow.NewTimer(ctx, wait), func(workflow.Future) {})
	s.Select(ctx)
}
