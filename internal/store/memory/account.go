package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// accounts are the ledger of a Store. The zero value is empty.
type accounts struct {
	mu       sync.Mutex
	rows     map[string][]account.Row                // by root; guarded by mu
	epochs   map[string]int64                        // by root; guarded by mu
	sums     map[string]*account.Sums                // by account; guarded by mu
	limits   map[string]account.Stored               // by account; guarded by mu
	full     map[string]int64                        // when the bucket of requests is full, by owner; guarded by mu
	watchers map[chan struct{}]struct{}              // guarded by mu
	shares   map[string]map[string]map[string]*share // by task, scope and run; guarded by mu
}

// share is the part of a run in a shared budget, and the epoch of the owner that has changed it.
type share struct {
	account.Part
	epoch int64
}

// ChangeShare implements account.Shares.
func (s *Store) ChangeShare(_ context.Context, of account.Share, change func(own, others account.Part) account.Part) (own, others account.Part, err error) {
	c := &s.accounts
	c.mu.Lock()
	defer c.mu.Unlock()
	runs := c.sharesOf(of)
	mine := runs[of.Run]
	if mine == nil {
		mine = &share{}
	}
	if mine.epoch > of.Epoch {
		return own, others, fmt.Errorf("epoch %d of %s: %w", of.Epoch, of.Run, agent.ErrFenced)
	}
	for run, p := range runs {
		if run != of.Run {
			others = others.Plus(p.Part)
		}
	}
	own = change(mine.Part, others)
	runs[of.Run] = &share{own, of.Epoch}
	return own, others, nil
}

// sharesOf returns the parts in a shared budget, by run. The caller must hold mu.
func (c *accounts) sharesOf(of account.Share) map[string]*share {
	if c.shares == nil {
		c.shares = map[string]map[string]map[string]*share{}
	}
	scopes := c.shares[of.Task]
	if scopes == nil {
		scopes = map[string]map[string]*share{}
		c.shares[of.Task] = scopes
	}
	if scopes[of.Scope] == nil {
		scopes[of.Scope] = map[string]*share{of.Task: {Part: of.First()}}
	}
	return scopes[of.Scope]
}

// dropShares deletes the shared budgets of a run.
func (c *accounts) dropShares(root string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.shares, root)
}

// admit returns agent.ErrFenced if an owner with a later epoch has opened the rows of a run. The
// caller must hold mu.
func (c *accounts) admit(r account.Run) error {
	if c.epochs[r.Root] > r.Epoch {
		return fmt.Errorf("epoch %d of %s: %w", r.Epoch, r.Root, agent.ErrFenced)
	}
	if c.rows == nil {
		c.rows, c.epochs = map[string][]account.Row{}, map[string]int64{}
	}
	c.epochs[r.Root] = r.Epoch
	return nil
}

// OpenUse implements account.Ledger.
func (s *Store) OpenUse(_ context.Context, r account.Run, day string, before agent.Cost) ([]account.Row, error) {
	c := &s.accounts
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.admit(r); err != nil {
		return nil, err
	}
	if len(c.rows[r.Root]) == 0 {
		c.rows[r.Root] = []account.Row{{Day: day, Before: before}}
	}
	return slices.Clone(c.rows[r.Root]), nil
}

// BookUse implements account.Ledger.
func (s *Store) BookUse(_ context.Context, r account.Run, b account.Booking) (account.Booked, error) {
	c := &s.accounts
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.admit(r); err != nil {
		return account.Booked{}, err
	}
	booked := b.Apply(c.rows[r.Root], c.sumsOf(r.Account))
	c.rows[r.Root] = slices.Clone(booked.Rows)
	return booked, nil
}

// sumsOf returns the sums of an account, to be changed. The caller must hold mu.
func (c *accounts) sumsOf(name string) *account.Sums {
	if c.sums == nil {
		c.sums = map[string]*account.Sums{}
	}
	if c.sums[name] == nil {
		c.sums[name] = &account.Sums{Days: map[string]account.Use{}}
	}
	return c.sums[name]
}

// RaiseUse implements account.Ledger.
func (s *Store) RaiseUse(_ context.Context, name, day string, spent agent.Cost) error {
	c := &s.accounts
	c.mu.Lock()
	defer c.mu.Unlock()
	sums := c.sumsOf(name)
	sums.Days[day] = sums.Days[day].Raise(spent)
	return nil
}

// Use implements account.Ledger.
func (s *Store) Use(_ context.Context, name, day string) (account.Use, error) {
	c := &s.accounts
	c.mu.Lock()
	defer c.mu.Unlock()
	sums := c.sums[name]
	if sums == nil {
		return account.Use{}, nil
	}
	u := sums.Days[day]
	u.InFlight = sums.InFlight
	return u, nil
}

// endUse deletes the rows of a run that has ended. What it still holds is booked as spent, because it
// may have been.
func (c *accounts) endUse(root, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows := c.rows[root]
	if len(rows) == 0 {
		return
	}
	b := account.Booking{}
	for _, row := range rows {
		row.Spent = agent.Cost{Tokens: row.Spent.Tokens + row.Held.Tokens, Micros: row.Spent.Micros + row.Held.Micros}
		row.Held = agent.Cost{}
		b.Rows = append(b.Rows, row)
	}
	if sums := c.sums[name]; sums != nil {
		b.Apply(rows, sums)
	}
	delete(c.rows, root)
	delete(c.epochs, root)
}

// AccountLimits implements account.Ledger.
func (s *Store) AccountLimits(context.Context) ([]account.Stored, error) {
	c := &s.accounts
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.limits), func(a, b account.Stored) int { return cmp.Compare(a.Account, b.Account) }), nil
}

// PutAccountLimits implements account.Ledger.
func (s *Store) PutAccountLimits(ctx context.Context, l account.Stored) error {
	c := &s.accounts
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limits == nil {
		c.limits = map[string]account.Stored{}
	}
	if l.Limits == nil {
		delete(c.limits, l.Account)
	} else {
		l.Limits = proto.CloneOf[*teamv1.AccountLimits](l.Limits)
		c.limits[l.Account] = l
	}
	for w := range c.watchers {
		store.Poke(w)
	}
	return s.audited(ctx)
}

// WatchAccountLimits implements account.Ledger.
func (s *Store) WatchAccountLimits() (wake <-chan struct{}, stop func()) {
	c, w := &s.accounts, make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers == nil {
		c.watchers = map[chan struct{}]struct{}{}
	}
	c.watchers[w] = struct{}{}
	return w, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, w)
	}
}

// CountRequests implements account.Ledger. What is full is forgotten.
func (s *Store) CountRequests(_ context.Context, list []account.Requests) (left []float64, err error) {
	c, now := &s.accounts, s.clock().UnixMicro()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full == nil {
		c.full = map[string]int64{}
	}
	maps.DeleteFunc(c.full, func(_ string, full int64) bool { return full <= now })
	for _, r := range list {
		full, n := r.Apply(c.full[r.Owner], now)
		c.full[r.Owner] = full
		left = append(left, n)
	}
	return left, nil
}

// Servers implements account.Counts.
func (s *Store) Servers(context.Context) (int, error) { return 1, nil }

// Queued implements account.Counts.
func (s *Store) Queued(_ context.Context, name string, most int) (int, error) {
	return min(s.due.waiting(name, s.clock()), most), nil
}

// StoredBytes implements account.Counts.
func (s *Store) StoredBytes(_ context.Context, name string) (int64, error) {
	s.mu.RLock()
	var runs []*run
	for _, r := range s.runs {
		if a2a.AccountOf(r.owner) == name {
			runs = append(runs, r)
		}
	}
	s.mu.RUnlock()
	n := int64(0)
	for _, r := range runs {
		r.mu.Lock()
		n += r.bytes
		r.mu.Unlock()
	}
	return n, nil
}
