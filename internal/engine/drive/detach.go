package drive

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"go.uber.org/zap"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// Tasks begins tasks for a run and returns how they ended. *a2a.Handler implements it. It is safe
// for concurrent use.
type Tasks interface {
	// Begin records a task that is due to run. On entry accepted has the pins of the run that begins the task; Begin
	// replaces them by the current ones and adds the conversation. A second call with the same task id has no effect.
	// The error is AGENT_NOT_FOUND, also if the id of the agent belongs to another account now, or the store's.
	Begin(ctx context.Context, accepted *teamv1.Accepted) error
	// Outcome returns how a task ended, with its reply as a message, or nil if it has not ended.
	// The error is TASK_NOT_FOUND or the store's.
	Outcome(ctx context.Context, k runs.Key) (*teamv1.Ended, error)
}

var _ agent.Detacher = (*drive)(nil)

// Detach begins a task with the owner and the conversation of this run. It implements
// agent.Detacher. The task shares the budgets of this run, of which it is given the part s.Budget; s.Budgets
// become those that begin with this run.
func (d *drive) Detach(ctx context.Context, s *teamv1.Spawned) error {
	acc := d.successor(s.GetTaskId(), s.GetAgent(), s.GetInput().GetParts())
	acc.Limits = spending.PartLimits(s.GetBudget())
	acc.Collaboration = d.accepted.GetCollaboration()
	acc.Detached = &teamv1.Detached{Parent: d.claim.Root, Member: s.GetMember(), Lead: s.GetLead(), Team: s.GetTeam()}
	purse, err := d.openPurse(ctx, nil) // if it is not open, no part has been given
	if err != nil {
		return err
	}
	s.Budgets = d.ownBudgets(s.GetBudgets())
	acc.Budgets = purse.Chain(s.GetBudgets())
	part := agent.CostOf(s.GetBudget())
	if err := purse.Give(ctx, s.GetTaskId(), part, s.GetBudgets()); err != nil {
		return err
	}
	if err := d.Tasks.Begin(ctx, acc); err != nil {
		var known *agent.Error
		if !errors.As(err, &known) && len(acc.GetBudgets()) > 0 { // it may have begun, with this part
			return d.journalError(err)
		}
		return errors.Join(runs.StoreError(acc.GetTaskId(), err), purse.TakeBack(ctx, s.GetTaskId(), s.GetBudgets()))
	}
	return purse.Gave(ctx, s.GetTaskId(), part, s.GetBudgets())
}

// ownBudgets returns those of the limits of a step, as its team knows them, that begin with this run. A woken
// run continues the budget of the run that it was caused by, so the limits of its agent are not new.
func (d *drive) ownBudgets(limits []*teamv1.SharedBudget) (own []*teamv1.SharedBudget) {
	woken := len(d.accepted.GetBudgets()) > 0 && d.accepted.GetDetached() == nil
	for _, b := range limits {
		if woken && b.GetScope() == "" {
			continue
		}
		b.TaskId = d.claim.Root
		own = append(own, b)
	}
	return own
}

// openPurse returns what the run may spend of the budgets that it shares with other runs. It is opened when
// it is first needed; recorded are the events that say which parts were given before.
func (d *drive) openPurse(ctx context.Context, recorded []*teamv1.Event) (*account.Purse, error) {
	d.opening.Lock()
	defer d.opening.Unlock()
	if d.purse != nil || d.Shares == nil {
		return d.purse, nil
	}
	p, err := account.OpenPurse(ctx, account.PurseOpening{
		Shares: d.Shares, Run: d.claim.Root, Epoch: d.claim.Epoch, Agent: d.accepted.GetAgent(), Inherited: d.accepted.GetBudgets(), Recorded: recorded,
		Fail: func(err error) error { return d.journalError(d.accountError(err)) },
	})
	if err != nil {
		return nil, d.accountError(err)
	}
	d.purse = p
	return p, nil
}

// sharesBudgets reports whether the run was caused by another one that shares its budgets, or has given parts
// of its own.
func (d *drive) sharesBudgets() bool {
	return len(d.accepted.GetBudgets()) > 0 ||
		slices.ContainsFunc(d.recorded, func(ev *teamv1.Event) bool { return len(ev.GetSpawned().GetBudgets()) > 0 })
}

// settleBudgets writes what the run has spent of the budgets that it shares, and adds them to its end. What it has
// done is on record before, so that the run, if it has to end again after a crash, needs nothing that others may
// have drawn meanwhile.
func (d *drive) settleBudgets(ctx context.Context, e *teamv1.Ended) (err error) {
	if d.purse == nil {
		return nil
	}
	if err := d.commit(ctx); err != nil {
		return err
	}
	e.Budgets, err = d.purse.Settle(ctx, func(scope string) agent.Cost {
		if scope == "" {
			return agent.CostOf(spending.SpentOn(d.recorded)).Max(agent.CostOf(e.GetSpent()))
		}
		within := slices.DeleteFunc(slices.Clone(d.recorded), func(ev *teamv1.Event) bool { return !agent.Within(ev.GetScope(), scope) })
		return agent.CostOf(spending.SpentOn(within))
	})
	if err != nil {
		return d.journalError(d.accountError(err))
	}
	return nil
}

// Detached returns how a detached task ended, or nil if it has not. It implements agent.Detacher.
func (d *drive) Detached(ctx context.Context, taskID string) (*teamv1.Ended, error) {
	return d.Tasks.Outcome(ctx, runs.Key{Owner: d.claim.Owner, ID: taskID})
}

// wakeLead tells the agent that detached this task how it ended, by beginning a task for that agent
// in the same conversation. It does so before the end is recorded, so that a crash between the two
// loses nothing. The id of the new task is derived from this one, so that a second call begins no
// second task.
func (d *drive) wakeLead(ctx context.Context, e *teamv1.Ended) error {
	origin := d.accepted.GetDetached()
	if origin.GetLead() == "" || d.Tasks == nil {
		return nil
	}
	acc := d.successor(d.run.ID("", "wake", 1), origin.GetLead(), d.news(e))
	acc.Budgets = d.accepted.GetBudgets()
	err := d.Tasks.Begin(ctx, acc)
	var known *agent.Error
	if errors.As(err, &known) && known.Reason == agent.ReasonAgentNotFound {
		d.Log.Warn("the agent that started a detached task is no longer served and cannot be notified of its end", zap.Error(err))
		return nil
	}
	if err != nil {
		return d.journalError(err)
	}
	return nil
}

// news returns the message that tells the lead how the task ended. A long result is referred to by
// the id of the task.
func (d *drive) news(e *teamv1.Ended) []*a2av1.Part {
	text := agent.Text(e.GetReply())
	switch {
	case e.GetError() != nil:
		text = e.GetError().GetReason() + ": " + e.GetError().GetMessage()
	case e.GetReplyRef() > 0:
		texts := journal.TextsOf(d.claim.Root, d.recorded)
		text = agent.Text(texts.At(e.GetReplyRef()))
	}
	head := fmt.Sprintf("The task %s that %s was given has ended: %s.", d.claim.Root, d.accepted.GetDetached().GetMember(), taskstate.Word(e.GetOutcome()))
	return agent.ResultParts(head, text, d.claim.Root)
}

// successor returns a task with the owner and the conversation of this one. It is one level deeper,
// so that the limit on depth also bounds tasks that begin each other.
func (d *drive) successor(id, agentID string, parts []*a2av1.Part) *teamv1.Accepted {
	acc := d.accepted
	return &teamv1.Accepted{
		TaskId: id, Agent: agentID, Owner: acc.GetOwner(), Seed: rand.Int64(), Depth: acc.GetDepth() + 1, Trace: acc.GetTrace(), Pins: acc.GetPins(), //nolint:gosec // jitter, not a secret
		Message: &a2av1.Message{
			MessageId: id, ContextId: acc.GetMessage().GetContextId(), Role: a2av1.Role_ROLE_USER, Parts: parts,
			ReferenceTaskIds: []string{d.claim.Root},
		},
	}
}
