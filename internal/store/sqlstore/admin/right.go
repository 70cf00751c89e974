package admin

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/record"
)

// Statements of the table owner_right.
const (
	putRight = `INSERT INTO owner_right (owner, signer, issuer, expires_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (owner, issuer, signer) DO UPDATE SET expires_at = excluded.expires_at WHERE owner_right.expires_at < excluded.expires_at`
	selectRights = `SELECT issuer, signer, expires_at FROM owner_right WHERE owner = $1`
)

// PutRights implements auth.Store.
func (s *Keys) PutRights(ctx context.Context, list []auth.Right) error {
	// Rows are locked in the same order by all replicas, so that they do not deadlock.
	list = slices.SortedFunc(slices.Values(list), func(a, b auth.Right) int {
		return cmp.Or(strings.Compare(a.Owner, b.Owner), strings.Compare(a.Source.Issuer, b.Source.Issuer), strings.Compare(a.Source.Key, b.Source.Key))
	})
	var stmts []db.Stmt
	for _, r := range list {
		stmts = append(stmts, db.With(putRight, r.Owner, r.Source.Key, r.Source.Issuer, r.Until.Unix()))
	}
	return s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error { return db.Exec(ctx, q, stmts...) })
}

// Rights implements auth.Store.
func (s *Keys) Rights(ctx context.Context, owner string) ([]auth.Right, error) {
	return db.List(ctx, s.DB.Reader(), func(rows *sql.Rows) (auth.Right, error) {
		r := auth.Right{Owner: owner}
		var until int64
		err := rows.Scan(&r.Source.Issuer, &r.Source.Key, &until)
		r.Until = time.Unix(until, 0)
		return r, err
	}, selectRights, owner)
}

// isBusy is the condition for rows of owner_right whose owner has unfinished tasks.
var isBusy = `EXISTS (SELECT 1 FROM task WHERE task.owner = owner_right.owner AND ` + record.OpenStates + `)`

// deleteEnded deletes rights that ended before a time, of owners without unfinished tasks.
var deleteEnded = `DELETE FROM owner_right WHERE expires_at < $1 AND NOT ` + isBusy

// Forget deletes rights that ended too long ago.
func (s *Keys) Forget(ctx context.Context, now time.Time) error {
	return s.DB.Run(ctx, deleteEnded, now.Add(-auth.RightsKept).Unix())
}

// EndedRights implements auth.Store.
func (s *Keys) EndedRights(ctx context.Context, now time.Time, accepted []auth.Source) (ended map[string]time.Time, err error) {
	w := &db.Where{}
	w.And("lasting.expires_at > ?", now.Unix())
	signers, issuers := []any{}, []any{}
	for _, source := range accepted {
		if source.Key == "" {
			issuers = append(issuers, source.Issuer)
		} else {
			signers = append(signers, source.Issuer+" "+source.Key)
		}
	}
	w.And("(lasting.issuer IN ("+db.Marks(len(issuers))+") OR lasting.issuer || ' ' || lasting.signer IN ("+db.Marks(len(signers))+"))", append(issuers, signers...)...)
	err = db.Each(ctx, s.DB.Reader(), func() { ended = map[string]time.Time{} }, func(rows *sql.Rows) error {
		var owner string
		var until int64
		err := rows.Scan(&owner, &until)
		ended[owner] = time.Unix(until, 0)
		return err
	}, `SELECT owner, max(expires_at) FROM owner_right WHERE NOT EXISTS (
SELECT 1 FROM owner_right lasting WHERE lasting.owner = owner_right.owner AND `+w.Text+`) AND `+isBusy+` GROUP BY owner`, w.Args...)
	return ended, err
}
