package memory

import (
	"context"
	"maps"
	"slices"
	"sync"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/audit"
)

// maxAudit is the number of records of an account that are kept in memory.
const maxAudit = 100_000

// chains are the audit chains of a Store. The zero value is empty. No other lock may be acquired while
// mu is held.
type chains struct {
	mu     sync.Mutex
	chains map[string][]audit.Entry // by account; guarded by mu
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
		chain := s.audit.chains[r.GetAccount()]
		last := audit.Entry{Account: r.GetAccount()}
		if len(chain) > 0 {
			last = chain[len(chain)-1]
		}
		e, err := audit.Next(last, r)
		if err != nil {
			return err
		}
		if s.audit.chains == nil {
			s.audit.chains = map[string][]audit.Entry{}
		}
		chain = append(chain, e)
		s.audit.chains[r.GetAccount()] = chain[max(len(chain)-maxAudit, 0):]
	}
	return nil
}

// Audit implements audit.Store.
func (s *Store) Audit(_ context.Context, account string, after int64, limit int) ([]audit.Entry, error) {
	s.audit.mu.Lock()
	defer s.audit.mu.Unlock()
	chain := s.audit.chains[account]
	i, _ := slices.BinarySearchFunc(chain, after+1, func(e audit.Entry, seq int64) int { return int(e.Seq - seq) })
	return slices.Clone(chain[i:min(i+limit, len(chain))]), nil
}

// AuditAccounts implements audit.Store.
func (s *Store) AuditAccounts(context.Context) ([]string, error) {
	s.audit.mu.Lock()
	defer s.audit.mu.Unlock()
	return slices.Sorted(maps.Keys(s.audit.chains)), nil
}
