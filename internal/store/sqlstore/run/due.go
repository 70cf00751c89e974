package run

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore/admin"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
)

const (
	// claimWait is how long a run waits that could not be claimed although it is due: another transaction has the run, or a
	// lease has just ended.
	claimWait = time.Second
	// behindWait is how long it waits if the replica is behind with the halts. That ends soon, or lasts.
	behindWait = 2 * time.Second
)

// heldWait is how long a run waits that another replica drives. TakeDue returns the run when that replica has given it up,
// or has died.
const heldWait = 5 * time.Minute

// Statements of engines that let another service schedule runs, see engine.Runs.
const (
	// untold is the condition for runs that are due and that TakeDue has not returned since.
	untold = `due <= $1 AND ` + isUntold
	// isUntold is the part of it that is not about time.
	isUntold = `(told IS NULL OR told <> due)`
	// abandonedHolder is the condition for runs of replicas whose lease has expired.
	abandonedHolder = `holder NOT IN (SELECT id FROM replica WHERE expires > $1)`
	// min and not EXISTS, so that PostgreSQL reads the index, because it expects most runs to be untold.
	selectUntold = `SELECT (SELECT min(due) FROM run WHERE ` + untold + `) IS NOT NULL, EXISTS (SELECT 1 FROM run WHERE holder IS NOT NULL AND ` + abandonedHolder + `)`
	// toldOf counts the runs that are driven, or will be soon, by owner.
	toldOf        = `SELECT owner, count(*) FROM run WHERE holder IS NOT NULL OR due <= $1 AND told = due GROUP BY owner`
	tell          = `UPDATE run SET told = due WHERE id = $1`
	untell        = `UPDATE run SET told = NULL WHERE id = $1 AND told IS NOT NULL`
	tellDueAt     = `UPDATE run SET told = due WHERE id = $1 AND due = $2`
	selectOverdue = `SELECT id, owner FROM run WHERE due <= $1 ORDER BY due LIMIT $2`
	untellAll     = `UPDATE run SET told = NULL WHERE told IS NOT NULL`
	insertEngine  = `INSERT INTO setting (name, value) VALUES ('engine', $1) ON CONFLICT DO NOTHING`
	setEngine     = `INSERT INTO setting (name, value) VALUES ('engine', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value`
	selectEngine  = `SELECT value FROM setting WHERE name = 'engine'`
	// hasIndex, createIndex and dropIndex are of the index for untold runs. Only the engines that tell others have it.
	hasIndex    = `SELECT to_regclass('run_untold') IS NOT NULL`
	createIndex = `CREATE INDEX IF NOT EXISTS run_untold ON run (due) WHERE due IS NOT NULL AND ` + isUntold
	dropIndex   = `DROP INDEX IF EXISTS run_untold`
	selectOwner = `SELECT owner FROM run WHERE id = $1`
	// selectWhy selects why a run was not claimed.
	selectWhy = `SELECT due, ended IS NOT NULL, holder IS NOT NULL, COALESCE((SELECT expires FROM replica WHERE id = holder), 0), ` + obeys + ` FROM run WHERE id = $2`
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
	}
	next, due, err := s.why(ctx, replica, root)
	if err == nil && due && full {
		return runs.Claim{}, engine.Next{}, s.ReturnDue(ctx, []string{root})
	}
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

// why returns when a replica should try again to claim a run that it could not claim, and whether the run is due.
func (s *Schedule) why(ctx context.Context, replica, root string) (next engine.Next, isDue bool, err error) {
	var due sql.NullInt64
	var ended, held, obeys bool
	var expires int64
	err = s.DB.Reader().Scan(ctx, []any{&due, &ended, &held, &expires, &obeys}, selectWhy, replica, root)
	if errors.Is(err, sql.ErrNoRows) || ended {
		return engine.Next{Ended: true}, false, nil
	}
	if err != nil {
		return engine.Next{}, false, err
	}
	now := s.DB.Millis()
	isDue = due.Valid && due.Int64 <= now
	switch {
	case expires > now:
		return engine.Next{At: time.UnixMilli(now).Add(heldWait)}, false, nil
	case !held && !isDue:
		return engine.Next{At: dueAt(due)}, false, nil
	case !obeys && !s.DB.Single:
		return engine.Next{At: time.UnixMilli(now).Add(behindWait)}, isDue, nil
	}
	return engine.Next{At: time.UnixMilli(now).Add(claimWait)}, isDue, nil // it can be claimed now, or soon
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

// takeLimited is TakeDue for owners whose numbers of running runs are limited. It first looks without the lock, because
// most of the time what waits has to wait on.
func (s *Schedule) takeLimited(ctx context.Context, room *engine.Room, now int64, limit int) (due []runs.Key, err error) {
	due, err = s.within(ctx, s.DB.Reader(), room, now, limit, ` AND `+isUntold, db.With(toldOf, now))
	if err != nil || len(due) == 0 {
		return nil, err
	}
	err = s.DB.Do(ctx, func(ctx context.Context, q db.Querier) (err error) {
		if err := admin.LockVersion(ctx, q, s.DB); err != nil { // one replica counts at a time
			return err
		}
		if due, err = s.within(ctx, q, room, now, limit, ` AND `+isUntold, db.With(toldOf, now)); err != nil {
			return err
		}
		var stmts []db.Stmt
		for _, k := range due {
			stmts = append(stmts, db.With(tell, k.ID))
		}
		return db.Exec(ctx, q, stmts...)
	})
	return due, err
}

// within returns up to limit runs that have been due since before a time and that meet a condition, those that have been
// due longest. Of accounts and owners with limits it returns as many as may be driven beside those that counted counts.
func (s *Schedule) within(ctx context.Context, q db.Querier, room *engine.Room, since int64, limit int, condition string, counted db.Stmt) ([]runs.Key, error) {
	by, err := owners(ctx, q, dueOwners, since)
	if err != nil || len(by) == 0 {
		return nil, err
	}
	running := engine.NewRoom(0, nil)
	err = db.Each(ctx, q, func() { running = engine.NewRoom(0, nil) }, func(r *sql.Rows) error {
		var owner string
		var n int
		err := r.Scan(&owner, &n)
		for range n {
			running.Take(owner)
		}
		return err
	}, counted.Text, counted.Args...)
	if err != nil {
		return nil, err
	}
	left := func(owner any) int {
		name, _ := owner.(string)
		account := identity.AccountOf(name)
		return min(limit, leftOf(room.MaxRunning(account), running.Held(account)), leftOf(room.MaxRunningEach(account), running.HeldBy(name)))
	}
	all, err := s.oldest(ctx, q, room, by, since, limit, condition, left)
	var due []runs.Key
	for _, d := range all {
		if len(due) < limit && left(d.Owner) > 0 {
			running.Take(d.Owner)
			due = append(due, d.Key)
		}
	}
	return due, err
}

// dueRun is a run that is due at a time.
type dueRun struct {
	runs.Key
	at int64
}

// oldest returns the runs of within, and further ones, because it does not know what an account may have beside an owner.
func (s *Schedule) oldest(ctx context.Context, q db.Querier, room *engine.Room, by map[string][]any, since int64, limit int, condition string, left func(any) int) ([]dueRun, error) {
	var all []dueRun
	var limited, others []any
	for account, of := range by {
		if room.LimitedIn(account) {
			limited = append(limited, slices.DeleteFunc(of, func(owner any) bool { return left(owner) == 0 })...)
		} else {
			others = append(others, of...)
		}
	}
	read := func(who []any, most int) error {
		who = padded(who)
		args := make([]any, 0, 2+2*len(who))
		args = append(args, int64(most), since)
		for _, owner := range who {
			args = append(args, owner, int64(left(owner)))
		}
		got, err := db.Rows(ctx, q, func(d *dueRun) []any { return []any{&d.ID, &d.Owner, &d.at} }, dueOf(len(who), 1, `id, owner, due`, condition, ``), args...)
		all = append(all, got...)
		return err
	}
	for who := range slices.Chunk(others, mostOwners) {
		if err := read(who, limit); err != nil {
			return nil, err
		}
	}
	for who := range slices.Chunk(limited, mostOwners) {
		if err := read(who, limit*len(who)); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b dueRun) int { return cmp.Compare(a.at, b.at) })
	return all, nil
}

// leftOf returns how many more than n a limit allows; 0 means no limit.
func leftOf(limit, n int) int {
	if limit <= 0 {
		return unlimited
	}
	return max(limit-n, 0)
}

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
func (s *Schedule) Overdue(ctx context.Context, room *engine.Room, since time.Time, limit int) ([]runs.Key, error) {
	if !room.Limited() {
		return db.Rows(ctx, s.DB.Reader(), keyOf, selectOverdue, since.UnixMilli(), int64(limit))
	}
	return s.within(ctx, s.DB.Reader(), room, since.UnixMilli(), limit, ``, db.With(runningOf))
}

// dueTopic is the topic of notifications that runs may be due.
const dueTopic = "~due"

// AnnounceDue implements engine.Leases.
func (s *Schedule) AnnounceDue() { s.DB.Tell(dueTopic, dueTopic) }

// WatchDue implements engine.Leases.
func (s *Schedule) WatchDue() (wake <-chan struct{}, stop func()) { return s.DB.Watch(dueTopic) }

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
		err = fmt.Errorf("the engine %q drives the runs of the store, not %q; %s", used, kind, db.UseEngine(string(used), kind))
	}
	if err != nil || kind == engine.StoreEngine {
		return err
	}
	has, err := db.Value[bool](ctx, s.DB.Reader(), hasIndex)
	if err == nil && !has { // to create it, all writes have to wait
		err = s.DB.Run(ctx, createIndex)
	}
	return err
}

// Unschedule has TakeDue return all runs that are due again.
func (s *Schedule) Unschedule(ctx context.Context) error { return s.DB.Run(ctx, untellAll) }

// MoveEngine records another kind of engine for the runs of the store, and that nothing is scheduled. The error says that
// a server uses the store.
func (s *Schedule) MoveEngine(ctx context.Context, kind string) error {
	return s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
		if err := db.Exec(ctx, q, db.With(untellAll), db.With(setEngine, []byte(kind))); err != nil {
			return err
		}
		alive, err := db.Value[int](ctx, q, countReplicas, s.DB.Millis())
		if err == nil && !s.DB.Single {
			err = Unused(alive, s.DB.Lease)
		}
		if err != nil {
			return err
		}
		return db.Exec(ctx, q, db.With(dropIndex)) // the engine creates it when it needs it
	})
}

// Unused returns an error if servers use a store.
func Unused(servers int, lease time.Duration) error {
	if servers == 0 {
		return nil
	}
	return fmt.Errorf("%d servers use the store; stop them and wait %v", servers, lease)
}
