package drive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
)

// funds is what a run may spend: the limits of its caller and of its account, and what it shares with other runs.
type funds struct {
	rec      *record
	agents   *agents
	accounts *account.Accounts // nil without limits of accounts
	shares   account.Shares    // nil if runs share nothing

	budget  *spending.Budget    // what is left of the caller's limits; nil means no limit
	account *account.RunAccount // nil if the account has no limits
	hold    *spending.Budget    // see reserveForRoot; nil without a reservation

	opening sync.Mutex     // held while purse is opened
	purse   *account.Purse // what the run shares with other runs; nil before it is needed
}

// openAccount opens the account of the run, and corrects what it has there to what is on record. If
// the account has no limits, it does nothing. The error is agent.ErrFenced or runs.ErrStorage.
func (f *funds) openAccount(ctx context.Context) error {
	if f.accounts == nil {
		return nil
	}
	o := account.Opening{Claim: f.rec.claim, Spent: agent.CostOf(spending.SpentOn(f.rec.events)), Held: spending.HeldOn(f.rec.events), Commit: f.rec.commit,
		Fail: func(err error) error { return f.rec.journalError(f.accountError(err)) },
	}
	if f.rec.started() {
		o.Adopt = f.worksElsewhere
	}
	var err error
	if f.account, err = f.accounts.Open(ctx, o); err != nil {
		return f.accountError(err)
	}
	return nil
}

// accountError returns an error of the ledger as the drive reports it.
func (f *funds) accountError(err error) error {
	if errors.Is(err, agent.ErrFenced) || errors.Is(err, runs.ErrStorage) {
		return fmt.Errorf("account of %s: %w", f.rec.claim.Root, err)
	}
	return fmt.Errorf("account of %s: %w: %w", f.rec.claim.Root, runs.ErrStorage, err)
}

// worksElsewhere reports whether the root's agent is on another server. What it may spend is then
// reserved for it as a whole, and what an earlier owner has reserved is not on record, but in the
// ledger only.
func (f *funds) worksElsewhere(ctx context.Context) (bool, error) {
	a, release, err := f.agents.find(ctx, f.rec.accepted.GetAgent())
	var gone *agent.Error
	switch {
	case errors.As(err, &gone):
		return false, nil
	case err != nil:
		return false, err
	}
	defer release()
	_, is := a.(agent.Reaper)
	return is, nil
}

// reserveForRoot reserves what the root's agent may spend if it is on another server and the account
// has limits. Other agents reserve for themselves.
func (f *funds) reserveForRoot(ctx context.Context, a agent.Agent) (err error) {
	if _, is := a.(agent.Reaper); !is || f.account == nil || f.hold != nil {
		return nil
	}
	least := agent.Cost{Tokens: 1, Micros: 1}
	if p, ok := a.(agent.TaskPricer); ok {
		least.Micros = max(least.Micros, p.TaskCost())
	}
	f.hold, err = f.budget.Acquire(ctx, spending.Want{Least: least, Enough: least, Most: agent.NoLimit(), Part: true})
	return err
}

// settleAccount writes to the ledger that the run holds what is on record, and has spent what is on
// record and at least spent, which may be nil. What the root's agent has reserved is released.
func (f *funds) settleAccount(ctx context.Context, spent *teamv1.Spent, held agent.Cost) error {
	if f.account == nil {
		return nil
	}
	f.hold = nil
	all := agent.CostOf(spending.SpentOn(f.rec.events)).Max(agent.CostOf(spent))
	if err := f.account.Sync(ctx, all, held); err != nil {
		return f.accountError(err)
	}
	return nil
}

// envelope returns the budget of the run: the caller's limits minus what is recorded as spent. What
// was reserved by a process that died is available again. It returns nil if neither the caller nor
// the account has set limits.
func (f *funds) envelope() *spending.Budget {
	limit := agent.LimitOf(f.rec.accepted.GetLimits())
	caused := len(f.rec.accepted.GetBudgets()) > 0 && f.purse != nil
	switch {
	case caused: // its part, and what it draws beyond that
		limit = f.purse.Limit()
	case f.purse != nil:
		limit = limit.Min(f.purse.Limit())
	}
	if limit == agent.NoLimit() && f.account == nil {
		return nil
	}
	b := spending.NewBudget("", limit, spending.BookedOn(f.rec.events)).Holding(spending.HeldOn(f.rec.events))
	if caused {
		b.From(f.purse)
	}
	if f.account != nil {
		b.Under(f.account)
	}
	return b
}

// left returns the limits that are sent to the agent that works for the root, which may be on
// another server. They include all of the remaining budget, because no other agent works beside it.
// For a collaboration they also include its other bounds, which are those of the team. It returns
// nil if there are no limits.
func (f *funds) left() *teamv1.Limits {
	var left *teamv1.Limits
	switch {
	case f.hold != nil:
		left = f.hold.Envelope()
	case f.budget != nil && len(f.rec.accepted.GetBudgets()) > 0: // more is drawn only for what runs here
		left = spending.LimitsOf(f.budget.Drawn())
	case f.budget != nil:
		left = spending.LimitsOf(f.budget.Left())
	}
	bounds := f.rec.accepted.GetLimits()
	if f.rec.accepted.GetCollaboration() == nil || bounds == nil {
		return left
	}
	all := proto.CloneOf(bounds)
	proto.Merge(all, left) // the remaining amounts replace the original ones
	return all
}

// ownBudgets returns those of the limits of a step, as its team knows them, that begin with this run. A woken
// run continues the budget of the run that it was caused by, so the limits of its agent are not new.
func (f *funds) ownBudgets(limits []*teamv1.SharedBudget) (own []*teamv1.SharedBudget) {
	woken := len(f.rec.accepted.GetBudgets()) > 0 && f.rec.accepted.GetDetached() == nil
	for _, b := range limits {
		if woken && b.GetScope() == "" {
			continue
		}
		b.TaskId = f.rec.claim.Root
		own = append(own, b)
	}
	return own
}

// openPurse returns what the run may spend of the budgets that it shares with other runs. It is opened when
// it is first needed; recorded are the events that say which parts were given before.
func (f *funds) openPurse(ctx context.Context, recorded []*teamv1.Event) (*account.Purse, error) {
	f.opening.Lock()
	defer f.opening.Unlock()
	if f.purse != nil || f.shares == nil {
		return f.purse, nil
	}
	p, err := account.OpenPurse(ctx, account.PurseOpening{
		Shares: f.shares, Run: f.rec.claim.Root, Epoch: f.rec.claim.Epoch, Agent: f.rec.accepted.GetAgent(), Inherited: f.rec.accepted.GetBudgets(), Recorded: recorded,
		Fail: func(err error) error { return f.rec.journalError(f.accountError(err)) },
	})
	if err != nil {
		return nil, f.accountError(err)
	}
	f.purse = p
	return p, nil
}

// sharesBudgets reports whether the run was caused by another one that shares its budgets, or has given parts
// of its own.
func (f *funds) sharesBudgets() bool {
	return len(f.rec.accepted.GetBudgets()) > 0 ||
		slices.ContainsFunc(f.rec.events, func(ev *teamv1.Event) bool { return len(ev.GetSpawned().GetBudgets()) > 0 })
}

// settleBudgets writes what the run has spent of the budgets that it shares, and adds them to its end. What it has
// done is on record before, so that the run, if it has to end again after a crash, needs nothing that others may
// have drawn meanwhile.
func (f *funds) settleBudgets(ctx context.Context, e *teamv1.Ended) (err error) {
	if f.purse == nil {
		return nil
	}
	if err := f.rec.commit(ctx); err != nil {
		return err
	}
	e.Budgets, err = f.purse.Settle(ctx, func(scope string) agent.Cost {
		if scope == "" {
			return agent.CostOf(spending.SpentOn(f.rec.events)).Max(agent.CostOf(e.GetSpent()))
		}
		within := slices.DeleteFunc(slices.Clone(f.rec.events), func(ev *teamv1.Event) bool { return !agent.Within(ev.GetScope(), scope) })
		return agent.CostOf(spending.SpentOn(within))
	})
	if err != nil {
		return f.rec.journalError(f.accountError(err))
	}
	return nil
}
