package spending

import (
	"context"

	"github.com/agentteams/team-server/pkg/agent"
)

// Account limits what all runs of an account may spend together. It stands above the root of a tree
// of budgets, see Budget.Under: what the tree grants is also reserved in the account. It is safe for
// concurrent use.
type Account interface {
	// Left returns about how much could be reserved now, without reading the store. An amount that
	// the account does not limit is Unlimited.
	Left() agent.Cost
	// Reserve reserves w.Most, or as much of it as the account has, at least w.Enough. If others
	// hold reservations that they may release, it waits for a limited time. After that time, or if
	// no others hold any, it settles for w.Least. With w.Part it reserves no more than a part of
	// what the account has, but not less than w.Least. instead is a reservation that is released in
	// exchange, or nil; after an error it is kept. The error is ACCOUNT_LIMIT_REACHED, the cause of
	// ctx, or that of the store. w.Instead is not used.
	Reserve(ctx context.Context, w Want, instead AccountHold) (agent.Cost, AccountHold, error)
	// Resume returns a reservation that the account holds from the beginning, see Budget.Resume.
	Resume(c agent.Cost) AccountHold
}

// AccountHold is a reservation in an Account.
type AccountHold interface {
	// Settle replaces the reservation with what was spent. It does not wait until the store has
	// recorded that. It must be called after the cost is appended to the journal. Further calls do
	// nothing.
	Settle(spent agent.Cost)
}

// Under makes a the account of the tree whose root is b, and returns b. It must be called before b
// is used.
func (b *Budget) Under(a Account) *Budget {
	b.tree.account = a
	return b
}

// account returns the account that reservations in b are also made in. It returns nil for a budget
// without an account, and for one below a reservation, which covers them.
func (b *Budget) account() Account {
	for n := b; n != nil; n = n.parent {
		if n.reserved {
			return nil
		}
	}
	return b.tree.account
}

// reserveInAccount reserves in the account what the tree has granted as r, of which w was asked. If
// the account has less, r becomes smaller; if that is too little, r is given back.
func (b *Budget) reserveInAccount(ctx context.Context, r *Budget, w Want) (*Budget, error) {
	a := b.account()
	if a == nil {
		return r, nil
	}
	var instead AccountHold
	if r.traded != nil {
		instead = r.traded.entry
	}
	w.Least, w.Enough, w.Most = w.Least.Min(r.limit), w.Enough.Min(r.limit), r.limit
	c, entry, err := a.Reserve(ctx, w, instead)
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	defer b.tree.tell()
	_ = r.drop()
	if err != nil {
		r.traded.restore()
		return nil, err
	}
	r.settled, r.limit, r.entry, r.traded = false, c, entry, nil
	r.hold()
	return r, nil
}
