package temporal

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
)

const (
	// tellEvery is how often a server looks for runs that became due without its knowing: at a time, when a halt ended,
	// by a process that has died, or because their holder has died.
	tellEvery = time.Second
	// tellPage is how many runs a server takes at once, and tellers how many of them it tells Temporal at the same time, so
	// that many that become due at the same time do not flood it.
	tellPage, tellers = 100, 16
)

// tell tells Temporal which runs are due, until ctx ends. The store is the outbox: it returns each run once, until a
// call has failed.
func (e *Engine) tell(ctx context.Context) {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		more, err := e.tellSome(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			e.Rarely("tell", func(skipped int) {
				e.Log.Warn("cannot tell Temporal which runs are due", zap.Int("not_logged", skipped), zap.Error(err))
			})
		case more:
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-e.wake:
		}
	}
}

// tellSome tells Temporal of up to tellPage runs. more reports whether there may be further ones.
func (e *Engine) tellSome(ctx context.Context) (more bool, err error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	due, err := e.Runs.TakeDue(call, e.copyRoom(), tellPage)
	cancel()
	if err != nil {
		return false, err
	}
	if len(due) > 0 {
		e.lookForAttributes(ctx)
	}
	failed, err := e.signalAll(ctx, due)
	if len(failed) > 0 {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		_ = e.Runs.ReturnDue(call, failed) // otherwise they are driven after two leases
	}
	return len(due) == tellPage && err == nil, err
}

// signalAll tells Temporal that runs are due. After the first failure it begins no further calls. It returns the runs of
// which Temporal may not know.
func (e *Engine) signalAll(ctx context.Context, due []runs.Key) (failed []string, err error) {
	told := make([]bool, len(due))
	calls, going := errgroup.WithContext(ctx)
	calls.SetLimit(tellers)
	for i, k := range due {
		calls.Go(func() error {
			if going.Err() != nil {
				return nil // an earlier call has failed
			}
			err := e.signal(ctx, k)
			told[i] = err == nil
			return err
		})
	}
	err = calls.Wait()
	for i, k := range due {
		if !told[i] {
			failed = append(failed, k.ID)
		}
	}
	return failed, err
}

// signal tells Temporal that a run is due. It begins a workflow unless one is open: an earlier one may have been ended by
// people.
func (e *Engine) signal(ctx context.Context, k runs.Key) error {
	call, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	opts := client.StartWorkflowOptions{
		TaskQueue: e.queue, WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, TypedSearchAttributes: e.attributesOf(call, k),
		Priority: temporal.Priority{FairnessKey: identity.AccountOf(k.Owner), FairnessWeight: float32(e.weight(k.Owner))},
	}
	_, err := e.client.SignalWithStartWorkflow(call, k.ID, signalName, nil, opts, workflowName, k.ID)
	if invalid := (*serviceerror.InvalidArgument)(nil); errors.As(err, &invalid) && opts.TypedSearchAttributes.Size() > 0 {
		e.attributed.Store(false) // they have been removed, or Temporal does not know of them everywhere yet
		opts.TypedSearchAttributes = temporal.SearchAttributes{}
		_, err = e.client.SignalWithStartWorkflow(call, k.ID, signalName, nil, opts, workflowName, k.ID)
	}
	return err
}

// weight returns the weight of the account of an owner.
func (e *Engine) weight(owner string) int {
	if e.Shares == nil {
		return 1
	}
	return max(e.Shares.Weight(identity.AccountOf(owner)), 1)
}
