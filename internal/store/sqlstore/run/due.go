package run

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore/admin"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
)

// claimWait is how long a run waits that could not be claimed although it is due: the replica is behind with the halts,
// another transaction has the run, or a lease has just ended.
const claimWait = time.Second

// Statements of engines that let another service schedule runs, see engine.Runs.
const (
	// untold is the condition for runs that are due and that TakeDue has not returned since.
	untold = `due <= $1 AND (told IS NULL OR told <> due)`
	// abandonedHolder is the condition for runs of replicas whose lease has expired.
	abandonedHolder = `holder NOT IN (SELECT id FROM replica WHERE expires > $1)`
	selectUntold    = `SELECT EXISTS (SELECT 1 FROM run WHERE ` + untold + `), EXISTS (SELECT 1 FROM run WHERE holder IS NOT NULL AND ` + abandonedHolder + `)`
	// firstUntold selects up to $2 runs of each owner.
	firstUntold = `SELECT id, owner FROM (SELECT id, owner, due, row_number() OVER (PARTITION BY owner ORDER BY due) AS n FROM run WHERE ` + untold + `) AS d
WHERE n <= $2 ORDER BY due`
	// toldOf counts the runs that are driven, or will be soon, by owner.
	toldOf        = `SELECT owner, count(*) FROM run WHERE holder IS NOT NULL OR due <= $1 AND told = due GROUP BY owner`
	tell          = `UPDATE run SET told = due WHERE id = $1`
	untell        = `UPDATE run SET told = NULL WHERE id = $1`
	tellDueAt     = `UPDATE run SET told = due WHERE id = $1 AND due = $2`
	selectOverdue = `SELECT id FROM run WHERE due <= $1 ORDER BY due LIMIT $2`
	untellAll     = `UPDATE run SET told = NULL WHERE told IS NOT NULL`
	insertEngine  = `INSERT INTO setting (name, value) VALUES ('engine', $1) ON CONFLICT DO NOTHING`
	setEngine     = `INSERT INTO setting (name, value) VALUES ('engine', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value`
	selectEngine  = `SELECT value FROM setting WHERE name = 'engine'`
	selectOwner   = `SELECT owner FROM run WHERE id = $1`
	// selectWhy selects why a run was not claimed.
	selectWhy = `SELECT due, ended IS NOT NULL, holder IS NOT NULL, COALESCE((SELECT expires FROM replica WHERE id = holder), 0) FROM run WHERE id = $1`
)

// Schedule has the runs of a database for engines that let another service schedule them. It implements engine.Runs.
type Schedule struct {
	DB     *db.DB
	Claims *Runs
}

// ClaimRun implements engine.Runs.
func (s *Schedule) ClaimRun(ctx context.Context, replica, root string, room *engine.Room) (runs.Claim, engine.Next, error) {
	if err := s.Claims.mayClaim(ctx, replica); err != nil {
		return runs.Claim{}, engine.Next{}, err
	}
	j, full, err := s.claimOne(ctx, replica, root, room)
	switch {
	case err != nil:
		return runs.Claim{}, engine.Next{}, err
	case j != nil:
		return *j, engine.Next{}, nil
	case full:
		return runs.Claim{}, engine.Next{}, s.ReturnDue(ctx, []string{root})
	}
	next, err := s.why(ctx, root)
	return runs.Claim{}, next, err
}

// claimOne claims a run. It returns nil if it cannot be claimed; full reports that its owner may have no more runs driven.
func (s *Schedule) claimOne(ctx context.Context, replica, root string, room *engine.Room) (got *runs.Claim, full bool, err error) {
	s.Claims.claiming.Lock()
	defer s.Claims.claiming.Unlock()
	s.Claims.expect(map[string]bool{})
	defer s.Claims.expect(nil)
	var c *claim
	tries := 0
	do := s.DB.Statement
	if room.Limited() { // those that run have to be counted
		do = s.DB.Do
	}
	err = do(ctx, func(ctx context.Context, q db.Querier) (err error) {
		tries++
		c = &claim{s: s.Claims, q: q, replica: replica, outlook: &outlook{now: s.DB.Millis()}, room: room.Clone(), over: map[string]int{}}
		if full, err = c.full(ctx, root); full || err != nil {
			return err
		}
		where := `id = $4 AND due <= $3`
		if !s.DB.Single {
			where = `id = $4 AND (due <= $3 OR holder <> $1 AND holder NOT IN (SELECT id FROM replica WHERE expires > $3)) AND ` + obeys
		}
		return c.takeFrom(ctx, `(SELECT c.holder FROM c WHERE c.id = run.id)`, `SELECT id, holder FROM run WHERE `+where+` LIMIT $2`+s.DB.Skip, 1, c.now, root)
	})
	if err != nil || tries > 1 { // as in claimDue
		s.Claims.doubt()
	}
	if err != nil || len(c.taken) == 0 {
		return nil, full, err
	}
	for holder, runs := range c.over {
		s.Claims.tookOver(ctx, holder, runs)
	}
	adopted := s.Claims.adopt(c.taken[0])
	return &adopted, false, nil
}

// full reports whether the owner of a run may have no more runs driven.
func (c *claim) full(ctx context.Context, root string) (bool, error) {
	if !c.room.Limited() {
		return false, nil
	}
	owner, err := db.Value[string](ctx, c.q, selectOwner, root)
	if err != nil {
		return false, ignoreNone(err)
	}
	account := identity.AccountOf(owner)
	most, err := c.limits(ctx, map[string][]any{account: {owner}})
	if err != nil {
		return false, err
	}
	left, limited := c.left[owner]
	return most[account] == 0 || limited && left == 0, nil
}

// ignoreNone returns nil for the error of a query that has found no row.
func ignoreNone(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// why returns when to try again to claim a run that could not be claimed.
func (s *Schedule) why(ctx context.Context, root string) (engine.Next, error) {
	var due sql.NullInt64
	var ended, held bool
	var expires int64
	err := s.DB.Reader().Scan(ctx, []any{&due, &ended, &held, &expires}, selectWhy, root)
	if errors.Is(err, sql.ErrNoRows) || ended {
		return engine.Next{Ended: true}, nil
	}
	now := s.DB.Millis()
	switch {
	case err != nil:
		return engine.Next{}, err
	case expires > now:
		return engine.Next{At: time.UnixMilli(expires)}, nil
	case held, due.Valid && due.Int64 <= now: // it can be claimed now, or soon
		return engine.Next{At: time.UnixMilli(now).Add(claimWait)}, nil
	}
	return engine.Next{At: dueAt(due)}, nil
}

// TakeDue implements engine.Runs.
func (s *Schedule) TakeDue(ctx context.Context, room *engine.Room, limit int) (due []runs.Key, err error) {
	now := s.DB.Millis()
	var some, lost bool
	if err := s.DB.Reader().Scan(ctx, []any{&some, &lost}, selectUntold, now); err != nil {
		return nil, err
	}
	if lost && !s.DB.Single {
		if err := s.releaseAbandoned(ctx, now); err != nil {
			return nil, err
		}
	} else if !some {
		return nil, nil
	}
	if room.Limited() {
		return s.takeLimited(ctx, room, now, limit)
	}
	err = s.DB.Statement(ctx, func(ctx context.Context, q db.Querier) (err error) {
		due, err = db.Rows(ctx, q, keyOf, `WITH c AS MATERIALIZED (SELECT id FROM run WHERE `+untold+` ORDER BY due LIMIT $2`+s.DB.Skip+`)
UPDATE run SET told = due WHERE id IN (SELECT id FROM c) RETURNING id, owner`, now, int64(limit))
		return err
	})
	return due, err
}

// keyOf returns where to scan the columns id and owner.
func keyOf(k *runs.Key) []any { return []any{&k.ID, &k.Owner} }

// takeLimited is TakeDue for owners whose numbers of running runs are limited.
func (s *Schedule) takeLimited(ctx context.Context, room *engine.Room, now int64, limit int) (due []runs.Key, err error) {
	err = s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
		due = nil
		if err := admin.LockVersion(ctx, q, s.DB); err != nil { // one replica counts at a time
			return err
		}
		var running *engine.Room
		err := db.Each(ctx, q, func() { running = engine.NewRoom(limit, nil) }, func(r *sql.Rows) error {
			var owner string
			var n int
			err := r.Scan(&owner, &n)
			for range n {
				running.Take(owner)
			}
			return err
		}, toldOf, now)
		if err != nil {
			return err
		}
		waiting, err := db.Rows(ctx, q, keyOf, firstUntold, now, int64(limit))
		if err != nil {
			return err
		}
		var stmts []db.Stmt
		for _, k := range waiting {
			account := identity.AccountOf(k.Owner)
			if len(due) == limit || reached(room.MaxRunning(account), running.Held(account)) || reached(room.MaxRunningEach(account), running.HeldBy(k.Owner)) {
				continue
			}
			running.Take(k.Owner)
			due, stmts = append(due, k), append(stmts, db.With(tell, k.ID))
		}
		return db.Exec(ctx, q, stmts...)
	})
	return due, err
}

// reached reports whether a number has reached a limit; 0 means no limit.
func reached(limit, n int) bool { return limit > 0 && n >= limit }

// releaseAbandoned makes the runs due that replicas hold whose lease has expired. What these still append before
// another replica claims the runs is accepted, as it is while they hold them.
func (s *Schedule) releaseAbandoned(ctx context.Context, now int64) error {
	var n int64
	err := s.DB.Statement(ctx, func(ctx context.Context, q db.Querier) (err error) {
		n, err = q.Exec(ctx, `WITH c AS MATERIALIZED (SELECT id FROM run WHERE holder IS NOT NULL AND `+abandonedHolder+s.DB.Skip+`)
UPDATE run SET holder = NULL, due = $1, told = NULL WHERE id IN (SELECT id FROM c)`, now)
		return err
	})
	if err == nil && n > 0 {
		s.DB.Metrics.TookOver(ctx, int(n))
		s.DB.Log.Info("released runs of lost replicas: their leases have expired", zap.Int64("runs", n))
	}
	return err
}

// ReturnDue implements engine.Runs.
func (s *Schedule) ReturnDue(ctx context.Context, roots []string) error {
	return s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
		var stmts []db.Stmt
		for _, root := range roots {
			stmts = append(stmts, db.With(untell, root))
		}
		return db.Exec(ctx, q, stmts...)
	})
}

// Scheduled implements engine.Runs.
func (s *Schedule) Scheduled(ctx context.Context, root string, at time.Time) error {
	return s.DB.Run(ctx, tellDueAt, root, at.UnixMilli())
}

// Overdue implements engine.Runs.
func (s *Schedule) Overdue(ctx context.Context, since time.Time, limit int) ([]string, error) {
	return db.Values[string](ctx, s.DB.Reader(), selectOverdue, since.UnixMilli(), int64(limit))
}

// UseEngine implements engine.Runs. A database of one process has no other engine.
func (s *Schedule) UseEngine(ctx context.Context, kind string) error {
	if s.DB.Single {
		return nil
	}
	if err := s.DB.Run(ctx, insertEngine, []byte(kind)); err != nil {
		return err
	}
	used, err := db.Value[[]byte](ctx, s.DB.Reader(), selectEngine)
	if err == nil && string(used) != kind {
		err = fmt.Errorf("the engine %q drives the runs of the store, not %q; set server.engine to that, or stop all servers that use the store and run team-server engine move --to %s", used, kind, kind)
	}
	return err
}

// Unschedule has TakeDue return all runs that are due again.
func (s *Schedule) Unschedule(ctx context.Context) error { return s.DB.Run(ctx, untellAll) }

// MoveEngine records another kind of engine for the runs of the store, and that nothing is scheduled. No server may use
// the store.
func (s *Schedule) MoveEngine(ctx context.Context, kind string) error {
	return s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
		return db.Exec(ctx, q, db.With(untellAll), db.With(setEngine, []byte(kind)))
	})
}
