package sqlstore

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
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// accountTopic is the topic of notifications that limits of accounts have changed, see catalogTopic.
const accountTopic = "~account"

// daysKept is how long the sums of a day are kept.
const daysKept = 400 * 24 * time.Hour

// OpenUse implements account.Ledger.
func (s *Store) OpenUse(ctx context.Context, r account.Run, day string, before agent.Cost) ([]account.Row, error) {
	var rows []account.Row
	err := s.db.do(ctx, func(ctx context.Context, q querier) error {
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
		_, err = q.exec(ctx, `UPDATE account_use SET epoch = $2 WHERE root = $1`, r.Root, r.Epoch)
		return err
	})
	return rows, s.unrecorded(err)
}

// BookUse implements account.Ledger. All bookings of an account lock one row, so that they happen
// one after the other.
func (s *Store) BookUse(ctx context.Context, r account.Run, b account.Booking) (account.Booked, error) {
	var booked account.Booked
	err := s.db.do(ctx, func(ctx context.Context, q querier) error {
		var err error
		booked, err = s.book(ctx, q, r, func([]account.Row) account.Booking { return b })
		return err
	})
	return booked, s.unrecorded(err)
}

// book makes a booking in a transaction. change returns it, and is given the rows of the run.
func (s *Store) book(ctx context.Context, q querier, r account.Run, change func([]account.Row) account.Booking) (booked account.Booked, err error) {
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
func (s *Store) lockAccount(ctx context.Context, q querier, name string) (c agent.Cost, err error) {
	const held = `SELECT held_tokens, held_micros FROM account_day WHERE account = $1 AND day = ''`
	err = q.scan(ctx, []any{&c.Tokens, &c.Micros}, held+s.db.lock(), name)
	if !errors.Is(err, sql.ErrNoRows) {
		return c, err
	}
	if _, err := q.exec(ctx, `INSERT INTO account_day (account, day, held_tokens, held_micros, spent_tokens, spent_micros)
VALUES ($1, '', 0, 0, 0, 0) ON CONFLICT DO NOTHING`, name); err != nil {
		return c, err
	}
	err = q.scan(ctx, []any{&c.Tokens, &c.Micros}, held+s.db.lock(), name)
	return c, err
}

// useOf returns the rows of a run, ordered by day. The error is agent.ErrFenced if an owner with a
// later epoch has opened them.
func useOf(ctx context.Context, q querier, r account.Run) (rows []account.Row, err error) {
	var latest int64
	err = each(ctx, q, func() { rows, latest = nil, 0 }, func(sr *sql.Rows) error {
		var row account.Row
		var epoch int64
		err := sr.Scan(&row.Day, &epoch, &row.Held.Tokens, &row.Held.Micros, &row.Spent.Tokens, &row.Spent.Micros, &row.Before.Tokens, &row.Before.Micros)
		rows, latest = append(rows, row), max(latest, epoch)
		return err
	}, `SELECT day, epoch, held_tokens, held_micros, spent_tokens, spent_micros, before_tokens, before_micros
FROM account_use WHERE root = $1 ORDER BY day`, r.Root)
	if err == nil && latest > r.Epoch {
		err = refusal{fmt.Errorf("epoch %d of %s: %w", r.Epoch, r.Root, agent.ErrFenced)}
	}
	return rows, err
}

// putUse writes a row of a run.
func putUse(ctx context.Context, q querier, r account.Run, row account.Row) error {
	_, err := q.exec(ctx, `INSERT INTO account_use (root, day, account, epoch, held_tokens, held_micros, spent_tokens, spent_micros, before_tokens, before_micros)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (root, day) DO UPDATE SET epoch = excluded.epoch, held_tokens = excluded.held_tokens, held_micros = excluded.held_micros,
spent_tokens = excluded.spent_tokens, spent_micros = excluded.spent_micros`,
		r.Root, row.Day, r.Account, r.Epoch, row.Held.Tokens, row.Held.Micros, row.Spent.Tokens, row.Spent.Micros, row.Before.Tokens, row.Before.Micros)
	return err
}

// dayOf returns the sums of an account for a day.
func dayOf(ctx context.Context, q querier, name, day string) (u account.Use, err error) {
	err = q.scan(ctx, []any{&u.Held.Tokens, &u.Held.Micros, &u.Spent.Tokens, &u.Spent.Micros},
		`SELECT held_tokens, held_micros, spent_tokens, spent_micros FROM account_day WHERE account = $1 AND day = $2`, name, day)
	if errors.Is(err, sql.ErrNoRows) {
		return account.Use{}, nil
	}
	return u, err
}

// putDay writes the sums of an account for a day.
func putDay(ctx context.Context, q querier, name, day string, u account.Use) error {
	_, err := q.exec(ctx, `INSERT INTO account_day (account, day, held_tokens, held_micros, spent_tokens, spent_micros) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (account, day) DO UPDATE SET held_tokens = excluded.held_tokens, held_micros = excluded.held_micros,
spent_tokens = excluded.spent_tokens, spent_micros = excluded.spent_micros`,
		name, day, u.Held.Tokens, u.Held.Micros, u.Spent.Tokens, u.Spent.Micros)
	return err
}

// Use implements account.Ledger.
func (s *Store) Use(ctx context.Context, name, day string) (account.Use, error) {
	u, err := dayOf(ctx, s.db.reader(), name, day)
	if err != nil {
		return u, err
	}
	all, err := dayOf(ctx, s.db.reader(), name, "")
	u.InFlight = all.Held
	return u, err
}

// RaiseUse implements account.Ledger.
func (s *Store) RaiseUse(ctx context.Context, name, day string, spent agent.Cost) error {
	return s.unrecorded(s.db.do(ctx, func(ctx context.Context, q querier) error {
		if _, err := s.lockAccount(ctx, q, name); err != nil {
			return err
		}
		u, err := dayOf(ctx, q, name, day)
		if err != nil || u.Raise(spent) == u {
			return err
		}
		return putDay(ctx, q, name, day, u.Raise(spent))
	}))
}

// endUse releases what runs still hold that have ended without having settled it, and books it as
// spent, because it may have been. The engine ends runs like that if their journals cannot be driven.
func (s *Store) endUse(ctx context.Context) error {
	var left []account.Run
	err := each(ctx, s.db.reader(), func() { left = nil }, func(rows *sql.Rows) error {
		var r account.Run
		err := rows.Scan(&r.Root, &r.Account, &r.Epoch)
		left = append(left, r)
		return err
	}, `SELECT root, account, max(account_use.epoch) FROM account_use WHERE (held_tokens > 0 OR held_micros > 0)
AND NOT EXISTS (SELECT 1 FROM run WHERE run.id = root AND run.ended IS NULL) GROUP BY root, account LIMIT 1000`)
	if err != nil {
		return err
	}
	for _, r := range left {
		err := s.db.do(ctx, func(ctx context.Context, q querier) error {
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
func (s *Store) AccountLimits(ctx context.Context) (list []account.Stored, err error) {
	err = each(ctx, s.db.reader(), func() { list = nil }, func(rows *sql.Rows) error {
		l := account.Stored{Limits: &teamv1.AccountLimits{}}
		var changed int64
		var body []byte
		if err := rows.Scan(&l.Account, &changed, &l.ChangedBy, &body); err != nil {
			return err
		}
		if err := proto.Unmarshal(body, l.Limits); err != nil {
			return fmt.Errorf("limits of account %s: %w: %w", l.Account, a2a.ErrDataLoss, err)
		}
		l.Changed = time.UnixMilli(changed).UTC()
		list = append(list, l)
		return nil
	}, `SELECT account, changed, changed_by, body FROM account_limits ORDER BY account`)
	return list, err
}

// PutAccountLimits implements account.Ledger.
func (s *Store) PutAccountLimits(ctx context.Context, l account.Stored) error {
	body, err := proto.Marshal(l.Limits)
	if err != nil {
		return err
	}
	err = s.change(ctx, func(ctx context.Context, q querier) error {
		if l.Limits == nil {
			_, err := q.exec(ctx, `DELETE FROM account_limits WHERE account = $1`, l.Account)
			return err
		}
		_, err := q.exec(ctx, `INSERT INTO account_limits (account, changed, changed_by, body) VALUES ($1, $2, $3, $4)
ON CONFLICT (account) DO UPDATE SET changed = excluded.changed, changed_by = excluded.changed_by, body = excluded.body`,
			l.Account, l.Changed.UnixMilli(), l.ChangedBy, body)
		return err
	})
	if err != nil {
		return s.unrecorded(err)
	}
	s.announce(accountTopic, store.Everybody)
	return nil
}

// WatchAccountLimits implements account.Ledger.
func (s *Store) WatchAccountLimits() (wake <-chan struct{}, stop func()) {
	return s.hub.watch(accountTopic)
}

// Queued implements account.Counts.
func (s *Store) Queued(ctx context.Context, name string, most int) (int, error) {
	now, of := s.now(), []any{name}
	if name == a2a.AccountOf(name) {
		all, err := owners(ctx, s.db.reader(), dueOwners, now)
		if err != nil {
			return 0, s.unrecorded(err)
		}
		of = all[name]
	}
	total := 0
	for who := range slices.Chunk(of, mostOwners) {
		who = padded(who)
		var n int
		err := s.db.reader().scan(ctx, []any{&n}, `SELECT count(*) FROM (SELECT 1 FROM run WHERE due <= $1 AND owner IN (`+numbered(3, len(who))+`) LIMIT $2) AS q`,
			append([]any{now, int64(most)}, who...)...)
		if total += n; err != nil || total >= most {
			return min(total, most), s.unrecorded(err)
		}
	}
	return total, nil
}

// Servers implements account.Counts.
func (s *Store) Servers(ctx context.Context) (int, error) {
	if s.db.single() {
		return 1, nil
	}
	var n int
	err := s.db.reader().scan(ctx, []any{&n}, `SELECT count(*) FROM replica WHERE expires > $1`, s.now())
	return max(n, 1), s.unrecorded(err)
}

// CountRequests implements account.Ledger.
func (s *Store) CountRequests(ctx context.Context, list []account.Requests) (left []float64, err error) {
	order := make([]int, len(list)) // one order for all replicas, which wait for each other's rows
	for i := range list {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(list[a].Owner, list[b].Owner) })
	err = s.db.do(ctx, func(ctx context.Context, q querier) error {
		left = make([]float64, len(list))
		for _, i := range order {
			var err error
			if left[i], err = s.countRequests(ctx, q, list[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return left, s.unrecorded(err)
}

// countRequests counts requests in a transaction, and returns what is left.
func (s *Store) countRequests(ctx context.Context, q querier, r account.Requests) (left float64, err error) {
	const of = `SELECT full_at FROM request_rate WHERE owner = $1`
	var full int64
	if r.Made == 0 {
		err = q.scan(ctx, []any{&full}, of, r.Owner)
	} else if err = q.scan(ctx, []any{&full}, of+s.db.lock(), r.Owner); errors.Is(err, sql.ErrNoRows) {
		if _, err := q.exec(ctx, `INSERT INTO request_rate (owner, full_at) VALUES ($1, 0) ON CONFLICT DO NOTHING`, r.Owner); err != nil {
			return 0, err
		}
		err = q.scan(ctx, []any{&full}, of+s.db.lock(), r.Owner)
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	after, left := r.Apply(full, 1000*s.now())
	if r.Made > 0 {
		_, err = q.exec(ctx, `UPDATE request_rate SET full_at = $2 WHERE owner = $1`, r.Owner, after)
		return left, err
	}
	return left, nil
}

// StoredBytes implements account.Counts.
func (s *Store) StoredBytes(ctx context.Context, name string) (int64, error) {
	total := int64(0)
	err := each(ctx, s.db.reader(), func() { total = 0 }, func(r *sql.Rows) error {
		var owner string
		var n int64
		err := r.Scan(&owner, &n)
		if a2a.AccountOf(owner) == name {
			total += n
		}
		return err
	}, `SELECT owner, CAST(sum(bytes) AS BIGINT) FROM run GROUP BY owner`)
	return total, s.unrecorded(err)
}
