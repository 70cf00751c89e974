package drive

import (
	"context"
	"errors"
	"fmt"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
)

// openAccount opens the account of the run, and corrects what it has there to what is on record. If
// the account has no limits, it does nothing. The error is agent.ErrFenced or runs.ErrStorage.
func (d *drive) openAccount(ctx context.Context) error {
	if d.Accounts == nil {
		return nil
	}
	o := account.Opening{Claim: d.claim, Spent: agent.CostOf(spending.SpentOn(d.recorded)), Held: spending.HeldOn(d.recorded), Commit: d.commit,
		Fail: func(err error) error { return d.journalError(d.accountError(err)) },
	}
	if d.started() {
		o.Adopt = d.worksElsewhere
	}
	var err error
	if d.account, err = d.Accounts.Open(ctx, o); err != nil {
		return d.accountError(err)
	}
	return nil
}

// accountError returns an error of the ledger as the drive reports it.
func (d *drive) accountError(err error) error {
	if errors.Is(err, agent.ErrFenced) || errors.Is(err, runs.ErrStorage) {
		return fmt.Errorf("account of %s: %w", d.claim.Root, err)
	}
	return fmt.Errorf("account of %s: %w: %w", d.claim.Root, runs.ErrStorage, err)
}

// worksElsewhere reports whether the root's agent is on another server. What it may spend is then
// reserved for it as a whole, and what an earlier owner has reserved is not on record, but in the
// ledger only.
func (d *drive) worksElsewhere(ctx context.Context) (bool, error) {
	a, release, err := d.find(ctx, d.accepted.GetAgent())
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
func (d *drive) reserveForRoot(ctx context.Context, a agent.Agent) (err error) {
	if _, is := a.(agent.Reaper); !is || d.account == nil || d.hold != nil || d.canceled {
		return nil
	}
	least := agent.Cost{Tokens: 1, Micros: 1}
	if p, ok := a.(agent.TaskPricer); ok {
		least.Micros = max(least.Micros, p.TaskCost())
	}
	d.hold, err = d.budget.Acquire(ctx, spending.Want{Least: least, Enough: least, Most: agent.NoLimit(), Part: true})
	return err
}

// settleAccount writes to the ledger that the run holds what is on record, and has spent what is on
// record and at least spent, which may be nil. What the root's agent has reserved is released.
func (d *drive) settleAccount(ctx context.Context, spent *teamv1.Spent, held agent.Cost) error {
	if d.account == nil {
		return nil
	}
	d.hold = nil
	all := agent.CostOf(spending.SpentOn(d.recorded)).Max(agent.CostOf(spent))
	if err := d.account.Sync(ctx, all, held); err != nil {
		return d.accountError(err)
	}
	return nil
}

// parked returns how the run is parked. What it holds of its account is what is on record.
func (d *drive) parked(ctx context.Context) (runs.Park, error) {
	return d.park(), d.settleAccount(ctx, nil, spending.HeldOn(d.recorded))
}
