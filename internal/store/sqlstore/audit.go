package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/audit"
)

// change makes a change in a transaction that also appends the audit record of ctx, if it has one.
func (s *Store) change(ctx context.Context, f func(ctx context.Context, q querier) error) error {
	return s.changeIf(ctx, func(ctx context.Context, q querier) (bool, error) { return true, f(ctx, q) })
}

// changeIf is like change, but appends the record only if f reports that it has changed something.
func (s *Store) changeIf(ctx context.Context, f func(ctx context.Context, q querier) (changed bool, err error)) error {
	r, audited := audit.Of(ctx)
	return s.db.do(ctx, func(ctx context.Context, q querier) error {
		changed, err := f(ctx, q)
		if err != nil || !changed || !audited {
			return err
		}
		return s.appendAudit(ctx, q, r)
	})
}

// AppendAudit implements audit.Store.
func (s *Store) AppendAudit(ctx context.Context, records ...*teamv1.AuditRecord) error {
	if len(records) == 0 {
		return nil
	}
	// Chains are locked in the order of their accounts, so that replicas do not deadlock.
	records = slices.SortedStableFunc(slices.Values(records), func(a, b *teamv1.AuditRecord) int {
		return strings.Compare(a.GetAccount(), b.GetAccount())
	})
	return s.db.do(ctx, func(ctx context.Context, q querier) error {
		for _, r := range records {
			if err := s.appendAudit(ctx, q, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// appendAudit appends a record to its chain, unless the chain has it already: a change may be tried
// again after its answer was lost.
func (s *Store) appendAudit(ctx context.Context, q querier, r *teamv1.AuditRecord) error {
	account := r.GetAccount()
	if _, err := q.exec(ctx, `INSERT INTO audit_head (account, seq, hash) VALUES ($1, 0, $2) ON CONFLICT (account) DO NOTHING`, account, []byte{}); err != nil {
		return err
	}
	last := audit.Entry{Account: account}
	if err := q.scan(ctx, []any{&last.Seq, &last.Hash}, `SELECT seq, hash FROM audit_head WHERE account = $1`+s.db.lock(), account); err != nil {
		return err
	}
	var n int
	if err := q.scan(ctx, []any{&n}, `SELECT count(*) FROM audit WHERE account = $1 AND id = $2`, account, r.GetId()); err != nil || n > 0 {
		return err
	}
	e, err := audit.Next(last, r)
	if err != nil {
		return err
	}
	if _, err := q.exec(ctx, `INSERT INTO audit (account, seq, id, hash, body) VALUES ($1, $2, $3, $4, $5)`, account, e.Seq, r.GetId(), e.Hash, e.Body); err != nil {
		return err
	}
	_, err = q.exec(ctx, `UPDATE audit_head SET seq = $2, hash = $3 WHERE account = $1`, account, e.Seq, e.Hash)
	return err
}

// Audit implements audit.Store.
func (s *Store) Audit(ctx context.Context, account string, after int64, limit int) (entries []audit.Entry, err error) {
	err = each(ctx, s.db.reader(), func() { entries = nil }, func(rows *sql.Rows) error {
		e := audit.Entry{Account: account}
		if err := rows.Scan(&e.Seq, &e.Hash, &e.Body); err != nil {
			return err
		}
		entries = append(entries, e)
		return nil
	}, `SELECT seq, hash, body FROM audit WHERE account = $1 AND seq > $2 ORDER BY seq LIMIT $3`, account, after, limit)
	return entries, err
}

// AuditDropped implements audit.Store.
func (s *Store) AuditDropped(ctx context.Context, account string) (audit.Entry, error) {
	e := audit.Entry{Account: account}
	err := s.db.reader().scan(ctx, []any{&e.Seq, &e.Hash}, `SELECT dropped, dropped_hash FROM audit_head WHERE account = $1`, account)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return e, err
}

// trimAudit deletes the records of all accounts that are older than keep, except those of broken chains.
func (s *Store) trimAudit(ctx context.Context, now time.Time, keep time.Duration) error {
	accounts, err := s.AuditAccounts(ctx)
	errs := []error{err}
	for _, account := range accounts {
		err := s.trimAccount(ctx, account, now, keep)
		if errors.Is(err, audit.ErrBroken) {
			s.cfg.Log.Error("the audit log was changed outside of the server, and is not deleted; compare it with a backup", zap.String("account", account), zap.Error(err))
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// trimAccount deletes the records of an account that are older than keep.
func (s *Store) trimAccount(ctx context.Context, account string, now time.Time, keep time.Duration) error {
	for {
		if more, err := s.trimChain(ctx, account, now, keep); !more || err != nil {
			return err
		}
	}
}

// trimChain deletes a batch of the oldest records of an account. more reports
// whether there may be further ones. It reads outside of the transaction and deletes nothing if another
// replica has deleted records meanwhile.
func (s *Store) trimChain(ctx context.Context, account string, now time.Time, keep time.Duration) (more bool, err error) {
	dropped, err := s.AuditDropped(ctx, account)
	if err != nil {
		return false, err
	}
	first, err := s.Audit(ctx, account, dropped.Seq, 2)
	if err != nil {
		return false, err
	}
	if _, ok, err := audit.Trim(dropped, first, now, keep); !ok || err != nil {
		return false, err // in most cases, after having read only two records
	}
	entries, err := s.Audit(ctx, account, dropped.Seq, audit.MaxTrim+1)
	if err != nil {
		return false, err
	}
	last, ok, err := audit.Trim(dropped, entries, now, keep)
	if err != nil || !ok {
		return false, err
	}
	trimmed := false
	err = s.db.do(ctx, func(ctx context.Context, q querier) error {
		n, err := q.exec(ctx, `UPDATE audit_head SET dropped = $2, dropped_hash = $3 WHERE account = $1 AND dropped = $4`, account, last.Seq, last.Hash, dropped.Seq)
		if trimmed = n > 0; err != nil || !trimmed {
			return err
		}
		_, err = q.exec(ctx, `DELETE FROM audit WHERE account = $1 AND seq <= $2`, account, last.Seq)
		return err
	})
	return trimmed && last.Seq-dropped.Seq == audit.MaxTrim, err
}

// AuditAccounts implements audit.Store.
func (s *Store) AuditAccounts(ctx context.Context) (accounts []string, err error) {
	err = each(ctx, s.db.reader(), func() { accounts = nil }, func(rows *sql.Rows) error {
		var account string
		err := rows.Scan(&account)
		accounts = append(accounts, account)
		return err
	}, `SELECT account FROM audit_head ORDER BY account`)
	return accounts, err
}
