package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/agentteams/team-server/internal/auth"
)

// PutRights implements auth.Store.
func (s *Store) PutRights(ctx context.Context, list []auth.Right) error {
	// Rows are locked in the same order by all replicas, so that they do not deadlock.
	list = slices.SortedFunc(slices.Values(list), func(a, b auth.Right) int {
		return cmp.Or(strings.Compare(a.Owner, b.Owner), strings.Compare(a.Source.Issuer, b.Source.Issuer), strings.Compare(a.Source.Key, b.Source.Key))
	})
	return s.unrecorded(s.db.do(ctx, func(ctx context.Context, q querier) error {
		for _, r := range list {
			if _, err := q.exec(ctx, `INSERT INTO owner_right (owner, signer, issuer, expires_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (owner, issuer, signer) DO UPDATE SET expires_at = excluded.expires_at WHERE owner_right.expires_at < excluded.expires_at`, r.Owner, r.Source.Key, r.Source.Issuer, r.Until.Unix()); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Rights implements auth.Store.
func (s *Store) Rights(ctx context.Context, owner string) (list []auth.Right, err error) {
	err = each(ctx, s.db.reader(), func() { list = nil }, func(rows *sql.Rows) error {
		r := auth.Right{Owner: owner}
		var until int64
		err := rows.Scan(&r.Source.Issuer, &r.Source.Key, &until)
		r.Until = time.Unix(until, 0)
		list = append(list, r)
		return err
	}, `SELECT issuer, signer, expires_at FROM owner_right WHERE owner = $1`, owner)
	return list, err
}

// marks returns placeholders for the arguments of an IN, for where. An IN without any has NULL, which nothing equals.
func marks(n int) string {
	if n == 0 {
		return "NULL"
	}
	return strings.Repeat("?, ", n-1) + "?"
}

// isBusy is the condition for rows of owner_right whose owner has unfinished tasks.
var isBusy = `EXISTS (SELECT 1 FROM task WHERE task.owner = owner_right.owner AND ` + openStates + `)`

// EndedRights implements auth.Store.
func (s *Store) EndedRights(ctx context.Context, now time.Time, accepted []auth.Source) (ended map[string]time.Time, err error) {
	w := &where{}
	w.and("lasting.expires_at > ?", now.Unix())
	signers, issuers := []any{}, []any{}
	for _, source := range accepted {
		if source.Key == "" {
			issuers = append(issuers, source.Issuer)
		} else {
			signers = append(signers, source.Issuer+" "+source.Key)
		}
	}
	w.and("(lasting.issuer IN ("+marks(len(issuers))+") OR lasting.issuer || ' ' || lasting.signer IN ("+marks(len(signers))+"))", append(issuers, signers...)...)
	err = each(ctx, s.db.reader(), func() { ended = map[string]time.Time{} }, func(rows *sql.Rows) error {
		var owner string
		var until int64
		err := rows.Scan(&owner, &until)
		ended[owner] = time.Unix(until, 0)
		return err
	}, `SELECT owner, max(expires_at) FROM owner_right WHERE NOT EXISTS (
SELECT 1 FROM owner_right lasting WHERE lasting.owner = owner_right.owner AND `+w.text+`) AND `+isBusy+` GROUP BY owner`, w.args...)
	return ended, err
}
