// Package account has what accounts and budgets hold and have spent, their limits, and the costs of all runs.
package account

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/admin"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/pkg/agent"
)

// accountTopic is the topic of notifications that limits of accounts have changed. It names no run.
const accountTopic = "~account"

// Tables are the tables of this package whose rows are copied with a store.
var Tables = []string{"account_use", "account_day", "shared_use", "account_limits", "request_rate", "cost"}

// DeleteRun are the statements that delete what belongs to a run, $1.
var DeleteRun = []string{`DELETE FROM account_use WHERE root = $1`, `DELETE FROM shared_use WHERE task = $1`}

// Ledger is what accounts use, and their limits. It implements account.Ledger and account.Shares.
type Ledger struct{ DB *db.DB }

// Statements of what accounts use, of their limits, and of the rates of requests.
const (
	openUse      = `UPDATE account_use SET epoch = $2 WHERE root = $1`
	beginAccount = `INSERT INTO account_day (account, day, held_tokens, held_micros, spent_tokens, spent_micros)
VALUES ($1, '', 0, 0, 0, 0) ON CONFLICT DO NOTHING`
	selectUse = `SELECT day, epoch, held_tokens, held_micros, spent_tokens, spent_micros, before_tokens, before_micros
FROM account_use WHERE root = $1 ORDER BY day`
	putUseRow = `INSERT INTO account_use (root, day, account, epoch, held_tokens, held_micros, spent_tokens, spent_micros, before_tokens, before_micros)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (root, day) DO UPDATE SET epoch = excluded.epoch, held_tokens = excluded.held_tokens, held_micros = excluded.held_micros,
spent_tokens = excluded.spent_tokens, spent_micros = excluded.spent_micros`
	selectDay = `SELECT held_tokens, held_micros, spent_tokens, spent_micros FROM account_day WHERE account = $1 AND day = $2`
	putDayRow = `INSERT INTO account_day (account, day, held_tokens, held_micros, spent_tokens, spent_micros) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (account, day) DO UPDATE SET held_tokens = excluded.held_tokens, held_micros = excluded.held_micros,
spent_tokens = excluded.spent_tokens, spent_micros = excluded.spent_micros`
	selectUnsettled = `SELECT root, account, max(account_use.epoch) FROM account_use WHERE (held_tokens > 0 OR held_micros > 0)
AND NOT EXISTS (SELECT 1 FROM run WHERE run.id = root AND run.ended IS NULL) GROUP BY root, account LIMIT 1000`
	selectLimits = `SELECT account, changed, changed_by, body FROM account_limits ORDER BY account`
	deleteLimits = `DELETE FROM account_limits WHERE account = $1`
	putLimits    = `INSERT INTO account_limits (account, changed, changed_by, body) VALUES ($1, $2, $3, $4)
ON CONFLICT (account) DO UPDATE SET changed = excluded.changed, changed_by = excluded.changed_by, body = excluded.body`
	beginRate   = `INSERT INTO request_rate (owner, full_at) VALUES ($1, 0) ON CONFLICT DO NOTHING`
	updateRate  = `UPDATE request_rate SET full_at = $2 WHERE owner = $1`
	deleteDays  = `DELETE FROM account_day WHERE day <> '' AND day < $1`
	deleteRates = `DELETE FROM request_rate WHERE full_at <= $1`
)

// daysKept is how long the sums of a day are kept.
const daysKept = 400 * 24 * time.Hour

// OpenUse implements account.Ledger.
func (s *Ledger) OpenUse(ctx context.Context, r account.Run, day string, before agent.Cost) ([]account.Row, error) {
	var rows []account.Row
	err := s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
		if _, err := s.lockAccount(ctx, q, r.Account); err != nil {
			return err
		}
		var err error
		if rows, err = useOf(ctx, q, r); err != nil {
			return err
		}
		if len(rows) == 0 {
			rows = []account.Row{{Day: day, Before: before}}
			return putUse(ctx, q, r, rows[0])
		}
		return db.Exec(ctx, q, db.With(openUse, r.Root, r.Epoch))
	})
	return rows, err
}

// BookUse implements account.Ledger. All bookings of an account lock one row, so that they happen
// one after the other.
func (s *Ledger) BookUse(ctx context.Context, r account.Run, b account.Booking) (account.Booked, error) {
	var booked account.Booked
	err := s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
		var err error
		booked, err = s.book(ctx, q, r, func([]account.Row) account.Booking { return b })
		return err
	})
	return booked, err
}

// book makes a booking in a transaction. change returns it, and is given the rows of the run.
func (s *Ledger) book(ctx context.Context, q db.Querier, r account.Run, change func([]account.Row) account.Booking) (booked account.Booked, err error) {
	sums := account.Sums{Days: map[string]account.Use{}}
	if sums.InFlight, err = s.lockAccount(ctx, q, r.Account); err != nil {
		return booked, err
	}
	rows, err := useOf(ctx, q, r)
	if err != nil {
		return booked, err
	}
	b := change(rows)
	days, before := b.Days(rows), map[string]account.Use{}
	for _, day := range days {
		u, err := dayOf(ctx, q, r.Account, day)
		if err != nil {
			return booked, err
		}
		sums.Days[day], before[day] = u, u
	}
	inFlight := sums.InFlight
	booked = b.Apply(rows, &sums)
	had := map[string]account.Row{}
	for _, row := range rows {
		had[row.Day] = row
	}
	for _, row := range booked.Rows {
		if old, known := had[row.Day]; known && old == row {
			continue
		}
		if err := putUse(ctx, q, r, row); err != nil {
			return booked, err
		}
	}
	for _, day := range days {
		if sums.Days[day] == before[day] {
			continue
		}
		if err := putDay(ctx, q, r.Account, day, sums.Days[day]); err != nil {
			return booked, err
		}
	}
	if sums.InFlight != inFlight {
		err = putDay(ctx, q, r.Account, "", account.Use{Held: sums.InFlight})
	}
	return booked, err
}

// lockAccount locks an account until the transaction ends and returns what it has in flight.
func (s *Ledger) lockAccount(ctx context.Context, q db.Querier, name string) (c agent.Cost, err error) {
	const held = `SELECT held_tokens, held_micros FROM account_day WHERE account = $1 AND day = ''`
	err = q.Scan(ctx, []any{&c.Tokens, &c.Micros}, held+s.DB.Lock, name)
	if !errors.Is(err, sql.ErrNoRows) {
		return c, err
	}
	if _, err := q.Exec(ctx, beginAccount, name); err != nil {
		return c, err
	}
	err = q.Scan(ctx, []any{&c.Tokens, &c.Micros}, held+s.DB.Lock, name)
	return c, err
}

// useOf returns the rows of a run, ordered by day. The error is agent.ErrFenced if an owner with a
// later epoch has opened them.
func useOf(ctx context.Context, q db.Querier, r account.Run) (rows []account.Row, err error) {
	var latest int64
	err = db.Each(ctx, q, func() { rows, latest = nil, 0 }, func(sr *sql.Rows) error {
		var row account.Row
		var epoch int64
		err := sr.Scan(&row.Day, &epoch, &row.Held.Tokens, &row.Held.Micros, &row.Spent.Tokens, &row.Spent.Micros, &row.Before.Tokens, &row.Before.Micros)
		rows, latest = append(rows, row), max(latest, epoch)
		return err
	}, selectUse, r.Root)
	if err == nil && latest > r.Epoch {
		err = db.Refuse(fmt.Errorf("epoch %d of %s: %w", r.Epoch, r.Root, agent.ErrFenced))
	}
	return rows, err
}

// putUse writes a row of a run.
func putUse(ctx context.Context, q db.Querier, r account.Run, row account.Row) error {
	return db.Exec(ctx, q, db.With(putUseRow, r.Root, row.Day, r.Account, r.Epoch, row.Held.Tokens, row.Held.Micros, row.Spent.Tokens, row.Spent.Micros, row.Before.Tokens, row.Before.Micros))
}

// dayOf returns the sums of an account for a day.
func dayOf(ctx context.Context, q db.Querier, name, day string) (u account.Use, err error) {
	err = q.Scan(ctx, []any{&u.Held.Tokens, &u.Held.Micros, &u.Spent.Tokens, &u.Spent.Micros}, selectDay, name, day)
	if errors.Is(err, sql.ErrNoRows) {
		return account.Use{}, nil
	}
	return u, err
}

// putDay writes the sums of an account for a day.
func putDay(ctx context.Context, q db.Querier, name, day string, u account.Use) error {
	return db.Exec(ctx, q, db.With(putDayRow, name, day, u.Held.Tokens, u.Held.Micros, u.Spent.Tokens, u.Spent.Micros))
}

// Use implements account.Ledger.
func (s *Ledger) Use(ctx context.Context, name, day string) (account.Use, error) {
	u, err := dayOf(ctx, s.DB.Reader(), name, day)
	if err != nil {
		return u, err
	}
	all, err := dayOf(ctx, s.DB.Reader(), name, "")
	u.InFlight = all.Held
	return u, err
}

// RaiseUse implements account.Ledger.
func (s *Ledger) RaiseUse(ctx context.Context, name, day string, spent agent.Cost) error {
	return s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
		if _, err := s.lockAccount(ctx, q, name); err != nil {
			return err
		}
		u, err := dayOf(ctx, q, name, day)
		if err != nil || u.Raise(spent) == u {
			return err
		}
		return putDay(ctx, q, name, day, u.Raise(spent))
	})
}

// EndUse releases what runs still hold that have ended without having settled it, and books it as
// spent, because it may have been. The engine ends runs like that if their journals cannot be driven.
func (s *Ledger) EndUse(ctx context.Context) error {
	left, err := db.Rows(ctx, s.DB.Reader(), func(r *account.Run) []any { return []any{&r.Root, &r.Account, &r.Epoch} }, selectUnsettled)
	if err != nil {
		return err
	}
	for _, r := range left {
		err := s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
			_, err := s.book(ctx, q, r, func(rows []account.Row) account.Booking {
				b := account.Booking{}
				for _, row := range rows {
					row.Spent = agent.Cost{Tokens: row.Spent.Tokens + row.Held.Tokens, Micros: row.Spent.Micros + row.Held.Micros}
					row.Held = agent.Cost{}
					b.Rows = append(b.Rows, row)
				}
				return b
			})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// AccountLimits implements account.Ledger.
func (s *Ledger) AccountLimits(ctx context.Context) ([]account.Stored, error) {
	return db.List(ctx, s.DB.Reader(), func(rows *sql.Rows) (account.Stored, error) {
		l := account.Stored{Limits: &teamv1.AccountLimits{}}
		var changed int64
		var body []byte
		if err := rows.Scan(&l.Account, &changed, &l.ChangedBy, &body); err != nil {
			return l, err
		}
		if err := proto.Unmarshal(body, l.Limits); err != nil {
			return l, fmt.Errorf("limits of account %s: %w: %w", l.Account, runs.ErrDataLoss, err)
		}
		l.Changed = time.UnixMilli(changed).UTC()
		return l, nil
	}, selectLimits)
}

// PutAccountLimits implements account.Ledger.
func (s *Ledger) PutAccountLimits(ctx context.Context, l account.Stored) error {
	body, err := proto.Marshal(l.Limits)
	if err != nil {
		return err
	}
	err = admin.Change(ctx, s.DB, func(ctx context.Context, q db.Querier) error {
		if l.Limits == nil {
			return db.Exec(ctx, q, db.With(deleteLimits, l.Account))
		}
		return db.Exec(ctx, q, db.With(putLimits, l.Account, l.Changed.UnixMilli(), l.ChangedBy, body))
	})
	if err != nil {
		return err
	}
	s.DB.Announce(accountTopic, store.AllOwners)
	return nil
}

// WatchAccountLimits implements account.Ledger.
func (s *Ledger) WatchAccountLimits() (wake <-chan struct{}, stop func()) {
	return s.DB.Watch(accountTopic)
}

// CountRequests implements account.Ledger.
func (s *Ledger) CountRequests(ctx context.Context, list []account.Requests) (left []float64, err error) {
	order := make([]int, len(list)) // one order for all replicas, which wait for each other's rows
	for i := range list {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(list[a].Owner, list[b].Owner) })
	err = s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
		left = make([]float64, len(list))
		for _, i := range order {
			var err error
			if left[i], err = s.countRequests(ctx, q, list[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return left, err
}

// countRequests counts requests in a transaction, and returns what is left.
func (s *Ledger) countRequests(ctx context.Context, q db.Querier, r account.Requests) (left float64, err error) {
	const of = `SELECT full_at FROM request_rate WHERE owner = $1`
	var full int64
	if r.Made == 0 {
		err = q.Scan(ctx, []any{&full}, of, r.Owner)
	} else if err = q.Scan(ctx, []any{&full}, of+s.DB.Lock, r.Owner); errors.Is(err, sql.ErrNoRows) {
		if _, err := q.Exec(ctx, beginRate, r.Owner); err != nil {
			return 0, err
		}
		err = q.Scan(ctx, []any{&full}, of+s.DB.Lock, r.Owner)
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	after, left := r.Apply(full, 1000*s.DB.Millis())
	if r.Made > 0 {
		_, err = q.Exec(ctx, updateRate, r.Owner, after)
		return left, err
	}
	return left, nil
}

// Forget deletes the sums of days long past, and counts of requests that say nothing any more.
func (s *Ledger) Forget(ctx context.Context, now time.Time) error {
	return s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
		return db.Exec(ctx, q, db.With(deleteDays, now.Add(-daysKept).UTC().Format(time.DateOnly)), db.With(deleteRates, now.UnixMicro()))
	})
}
