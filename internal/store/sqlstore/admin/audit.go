// Package admin has what operators manage: the audit log, the catalog, halts, API keys and rights, and definitions.
// Its types implement the interfaces of the packages of these subjects.
package admin

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
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
)

// Audits are the chains of the audit log. It implements audit.Store.
type Audits struct{ DB *db.DB }

// Tables are the tables of this package whose rows are copied with a store.
var Tables = []string{"definition", "halt", "halt_task", "catalog", "audit", "audit_head", "api_key", "owner_right"}

// Versions are the tables of one row that counts changes.
var Versions = []string{"halt_version", "catalog_version"}

// Statements of the tables audit and audit_head.
const (
	beginChain    = `INSERT INTO audit_head (account, seq, hash) VALUES ($1, 0, $2) ON CONFLICT (account) DO NOTHING`
	selectChain   = `SELECT seq, hash FROM audit_head WHERE account = $1`
	selectDropped = `SELECT dropped, dropped_hash FROM audit_head WHERE account = $1`
	selectChains  = `SELECT account FROM audit_head ORDER BY account`
	updateChain   = `UPDATE audit_head SET seq = $2, hash = $3 WHERE account = $1`
	updateDropped = `UPDATE audit_head SET dropped = $2, dropped_hash = $3 WHERE account = $1 AND dropped = $4`
	countRecord   = `SELECT count(*) FROM audit WHERE account = $1 AND id = $2`
	insertRecord  = `INSERT INTO audit (account, seq, id, hash, body) VALUES ($1, $2, $3, $4, $5)`
	selectRecords = `SELECT seq, hash, body FROM audit WHERE account = $1 AND seq > $2 ORDER BY seq LIMIT $3`
	deleteRecords = `DELETE FROM audit WHERE account = $1 AND seq <= $2`
)

// Change makes a change in a transaction that also appends the audit record of ctx, if it has one.
func Change(ctx context.Context, d *db.DB, f func(ctx context.Context, q db.Querier) error) error {
	return ChangeIf(ctx, d, func(ctx context.Context, q db.Querier) (bool, error) { return true, f(ctx, q) })
}

// ChangeIf is like Change, but appends the record only if f reports that it has changed something.
func ChangeIf(ctx context.Context, d *db.DB, f func(ctx context.Context, q db.Querier) (changed bool, err error)) error {
	r, audited := audit.Of(ctx)
	return d.Do(ctx, func(ctx context.Context, q db.Querier) error {
		changed, err := f(ctx, q)
		if err != nil || !changed || !audited {
			return err
		}
		return appendAudit(ctx, q, d.Lock, r)
	})
}

// AppendAudit implements audit.Store.
func (s *Audits) AppendAudit(ctx context.Context, records ...*teamv1.AuditRecord) error {
	if len(records) == 0 {
		return nil
	}
	// Chains are locked in the order of their accounts, so that replicas do not deadlock.
	records = slices.SortedStableFunc(slices.Values(records), func(a, b *teamv1.AuditRecord) int {
		return strings.Compare(a.GetAccount(), b.GetAccount())
	})
	return s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
		for _, r := range records {
			if err := appendAudit(ctx, q, s.DB.Lock, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// appendAudit appends a record to its chain, unless the chain has it already: a change may be tried
// again after its answer was lost. lock is the clause that locks a row.
func appendAudit(ctx context.Context, q db.Querier, lock string, r *teamv1.AuditRecord) error {
	account := r.GetAccount()
	if _, err := q.Exec(ctx, beginChain, account, []byte{}); err != nil {
		return err
	}
	last := audit.Entry{Account: account}
	if err := q.Scan(ctx, []any{&last.Seq, &last.Hash}, selectChain+lock, account); err != nil {
		return err
	}
	n, err := db.Value[int](ctx, q, countRecord, account, r.GetId())
	if err != nil || n > 0 {
		return err
	}
	e, err := audit.Next(last, r)
	if err != nil {
		return err
	}
	return db.Exec(ctx, q, db.With(insertRecord, account, e.Seq, r.GetId(), e.Hash, e.Body), db.With(updateChain, account, e.Seq, e.Hash))
}

// Audit implements audit.Store.
func (s *Audits) Audit(ctx context.Context, account string, after int64, limit int) ([]audit.Entry, error) {
	return db.List(ctx, s.DB.Reader(), func(rows *sql.Rows) (audit.Entry, error) {
		e := audit.Entry{Account: account}
		err := rows.Scan(&e.Seq, &e.Hash, &e.Body)
		return e, err
	}, selectRecords, account, after, limit)
}

// AuditDropped implements audit.Store.
func (s *Audits) AuditDropped(ctx context.Context, account string) (audit.Entry, error) {
	e := audit.Entry{Account: account}
	err := s.DB.Reader().Scan(ctx, []any{&e.Seq, &e.Hash}, selectDropped, account)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return e, err
}

// Trim deletes the records of all accounts that are older than keep, except those of broken chains.
func (s *Audits) Trim(ctx context.Context, now time.Time, keep time.Duration) error {
	accounts, err := s.AuditAccounts(ctx)
	errs := []error{err}
	for _, account := range accounts {
		err := db.Repeat(func() (more bool, err error) { return s.trimChain(ctx, account, now, keep) })
		if errors.Is(err, audit.ErrBroken) {
			s.DB.Log.Error("the audit log was changed outside of the server, and is not deleted; compare it with a backup", zap.String("account", account), zap.Error(err))
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// trimChain deletes a batch of the oldest records of an account. more reports
// whether there may be further ones. It reads outside of the transaction and deletes nothing if another
// replica has deleted records meanwhile.
func (s *Audits) trimChain(ctx context.Context, account string, now time.Time, keep time.Duration) (more bool, err error) {
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
	err = s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
		n, err := q.Exec(ctx, updateDropped, account, last.Seq, last.Hash, dropped.Seq)
		if trimmed = n > 0; err != nil || !trimmed {
			return err
		}
		return db.Exec(ctx, q, db.With(deleteRecords, account, last.Seq))
	})
	return trimmed && last.Seq-dropped.Seq == audit.MaxTrim, err
}

// Drop deletes the oldest records of accounts that have more than most, and keeps a number of them.
func (s *Audits) Drop(ctx context.Context, most, keep int64) error {
	return s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
		n, err := q.Exec(ctx, `UPDATE audit_head SET dropped = seq - $1, dropped_hash = (SELECT audit.hash FROM audit
WHERE audit.account = audit_head.account AND audit.seq = audit_head.seq - $1) WHERE seq - dropped > $2`, keep, most)
		if err != nil || n == 0 {
			return err
		}
		_, err = q.Exec(ctx, `DELETE FROM audit WHERE seq <= (SELECT dropped FROM audit_head WHERE audit_head.account = audit.account)`)
		return err
	})
}

// AuditAccounts implements audit.Store.
func (s *Audits) AuditAccounts(ctx context.Context) ([]string, error) {
	return db.Values[string](ctx, s.DB.Reader(), selectChains)
}
