package memory

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/audit"
)

// maxAudit is the number of records of an account that are kept in memory.
const maxAudit = 100_000

// chains are the audit chains of a Store. The zero value is empty. No other lock may be acquired while
// mu is held.
type chains struct {
	mu     sync.Mutex
	chains map[string]*chain // by account; guarded by mu
}

// chain is the audit chain of an account.
type chain struct {
	entries []audit.Entry
	ids     map[string]bool // of the records in entries
	dropped audit.Entry     // the last one that is no longer in entries
}

// audited appends the audit record of a change that was made, if ctx has one.
func (s *Store) audited(ctx context.Context) error {
	if r, ok := audit.Of(ctx); ok {
		return s.AppendAudit(ctx, r)
	}
	return nil
}

// AppendAudit implements audit.Store.
func (s *Store) AppendAudit(_ context.Context, records ...*teamv1.AuditRecord) error {
	s.audit.mu.Lock()
	defer s.audit.mu.Unlock()
	for _, r := range records {
		c := s.audit.chains[r.GetAccount()]
		if c == nil {
			c = &chain{ids: map[string]bool{}, dropped: audit.Entry{Account: r.GetAccount()}}
		}
		if c.ids[r.GetId()] {
			continue
		}
		e, err := audit.Next(c.last(), r)
		if err != nil {
			return err
		}
		c.entries, c.ids[r.GetId()] = append(c.entries, e), true
		if len(c.entries) > maxAudit {
			c.drop(maxAudit / 10)
		}
		if s.audit.chains == nil {
			s.audit.chains = map[string]*chain{}
		}
		s.audit.chains[r.GetAccount()] = c
	}
	return nil
}

// drop removes the first n records.
func (c *chain) drop(n int) {
	for _, e := range c.entries[:n] {
		if r, err := e.Record(); err == nil {
			delete(c.ids, r.GetId())
		}
	}
	c.dropped = c.entries[n-1]
	c.entries = slices.Clone(c.entries[n:])
}

// last returns the last record, also if it is no longer in entries.
func (c *chain) last() audit.Entry {
	if len(c.entries) > 0 {
		return c.entries[len(c.entries)-1]
	}
	return c.dropped
}

// trimAudit deletes the records of all accounts that are older than keep.
func (s *Store) trimAudit(now time.Time, keep time.Duration) error {
	s.audit.mu.Lock()
	defer s.audit.mu.Unlock()
	var errs []error
	for _, c := range s.audit.chains {
		errs = append(errs, c.trim(now, keep))
	}
	return errors.Join(errs...)
}

// trim removes the records that are older than keep.
func (c *chain) trim(now time.Time, keep time.Duration) error {
	for {
		last, ok, err := audit.Trim(c.dropped, c.entries, now, keep)
		if err != nil || !ok {
			return err
		}
		c.drop(int(last.Seq - c.dropped.Seq))
	}
}

// AuditDropped implements audit.Store.
func (s *Store) AuditDropped(_ context.Context, account string) (audit.Entry, error) {
	s.audit.mu.Lock()
	defer s.audit.mu.Unlock()
	if c := s.audit.chains[account]; c != nil {
		return c.dropped, nil
	}
	return audit.Entry{Account: account}, nil
}

// Audit implements audit.Store.
func (s *Store) Audit(_ context.Context, account string, after int64, limit int) ([]audit.Entry, error) {
	s.audit.mu.Lock()
	defer s.audit.mu.Unlock()
	c := s.audit.chains[account]
	if c == nil {
		return nil, nil
	}
	chain := c.entries
	i, _ := slices.BinarySearchFunc(chain, after+1, func(e audit.Entry, seq int64) int { return int(e.Seq - seq) })
	return slices.Clone(chain[i:min(i+limit, len(chain))]), nil
}

// AuditAccounts implements audit.Store.
func (s *Store) AuditAccounts(context.Context) ([]string, error) {
	s.audit.mu.Lock()
	defer s.audit.mu.Unlock()
	return slices.Sorted(maps.Keys(s.audit.chains)), nil
}
