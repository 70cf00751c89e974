package account

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/pkg/agent"
)

// Statements of the table shared_use.
const (
	lockShare    = `SELECT epoch FROM shared_use WHERE task = $1 AND scope = $2 AND run = $1`
	selectShares = `SELECT run, epoch, held_tokens, held_micros, spent_tokens, spent_micros FROM shared_use WHERE task = $1 AND scope = $2`
)

// ChangeShare implements account.Shares. All changes of a budget lock one row, so that they happen one after
// the other.
func (s *Ledger) ChangeShare(ctx context.Context, of account.Share, change func(own, others account.Part) account.Part) (own, others account.Part, err error) {
	err = s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
		first := of
		first.Run, first.Epoch = of.Task, 0
		if err := putShare(ctx, q, first, of.First(), "NOTHING"); err != nil {
			return err
		}
		if _, err := db.Value[int64](ctx, q, lockShare+s.DB.Lock, of.Task, of.Scope); err != nil {
			return err
		}
		if own, others, err = sharesOf(ctx, q, of); err != nil {
			return err
		}
		own = change(own, others)
		return putShare(ctx, q, of, own, `UPDATE SET epoch = excluded.epoch, held_tokens = excluded.held_tokens, held_micros = excluded.held_micros,
spent_tokens = excluded.spent_tokens, spent_micros = excluded.spent_micros`)
	})
	return own, others, err
}

// sharesOf returns what a run and the other runs hold and have spent of a budget. The error is agent.ErrFenced
// if an owner with a later epoch has changed the part of the run.
func sharesOf(ctx context.Context, q db.Querier, of account.Share) (own, others account.Part, err error) {
	var latest int64
	err = db.Each(ctx, q, func() { own, others, latest = account.Part{}, account.Part{}, 0 }, func(rows *sql.Rows) error {
		var run string
		var epoch int64
		var p account.Part
		if err := rows.Scan(&run, &epoch, &p.Held.Tokens, &p.Held.Micros, &p.Spent.Tokens, &p.Spent.Micros); err != nil {
			return err
		}
		if run == of.Run {
			own, latest = p, epoch
		} else {
			others = others.Plus(p)
		}
		return nil
	}, selectShares, of.Task, of.Scope)
	if err == nil && latest > of.Epoch {
		err = db.Refuse(fmt.Errorf("epoch %d of %s: %w", of.Epoch, of.Run, agent.ErrFenced))
	}
	return own, others, err
}

// putShare writes the part of a run. conflict says what to do if there is one.
func putShare(ctx context.Context, q db.Querier, of account.Share, p account.Part, conflict string) error {
	return db.Exec(ctx, q, db.With(`INSERT INTO shared_use (task, scope, run, epoch, held_tokens, held_micros, spent_tokens, spent_micros)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (task, scope, run) DO `+conflict,
		of.Task, of.Scope, of.Run, of.Epoch, p.Held.Tokens, p.Held.Micros, p.Spent.Tokens, p.Spent.Micros))
}
