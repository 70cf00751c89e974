package run

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/ring"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore/admin"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/push"
	"github.com/agentteams/team-server/pkg/agent"
)

// Statements of who holds runs.
const (
	selectHeld     = `SELECT id, epoch FROM run WHERE holder = $1`
	nextDue        = `SELECT min(due) FROM run WHERE due > $1`
	countHeld      = `SELECT count(*) FROM run WHERE holder = $1`
	hasInput       = `SELECT 1 FROM inbox WHERE id = $1 LIMIT 1`
	parkRun        = `UPDATE run SET holder = NULL, due = $3, halted = $4 WHERE id = $1 AND epoch = $2`
	selectHolder   = `SELECT epoch, holder FROM run WHERE id = $1`
	releaseRun     = `UPDATE run SET holder = NULL, due = $3 WHERE id = $1 AND epoch = $2 AND ended IS NULL`
	suspendRun     = `UPDATE run SET holder = NULL, due = NULL, parked = $3 WHERE id = $1 AND epoch = $2 AND ended IS NULL`
	releaseAll     = `UPDATE run SET holder = NULL, due = $1 WHERE holder IS NOT NULL`
	wakeParked     = `UPDATE run SET due = $1 WHERE parked IS NOT NULL`
	deleteReplicas = `DELETE FROM replica`
)

// Lease returns how long a replica keeps its runs after its last heartbeat; 0 means that they are
// kept as long as the process lives, because it has exclusive use of the database.
func (s *Runs) Lease() time.Duration {
	if s.db.Single {
		return 0
	}
	return s.db.Lease
}

// beat records a heartbeat.
const beat = `INSERT INTO replica (id, expires) VALUES ($1, $2)
ON CONFLICT (id) DO UPDATE SET expires = excluded.expires`

// Beat records a heartbeat of a replica: for the time of a lease, no other replica claims its runs.
// A replica sends three heartbeats per lease.
func (s *Runs) Beat(ctx context.Context, replica string) error {
	if err := s.db.SyncClock(ctx); err != nil {
		return err
	}
	if err := s.db.Run(ctx, beat, replica, s.db.Millis()+s.db.Lease.Milliseconds()); err != nil {
		return err
	}
	s.mu.Lock()
	s.replicas[replica] = time.Now()
	unsure := time.Now().Before(s.unsure)
	s.mu.Unlock()
	if unsure {
		return s.reclaim(ctx, replica)
	}
	return nil
}

// heardOf reports whether a replica of this process has sent a heartbeat within a third of a lease.
func (s *Runs) heardOf(replica string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, known := s.replicas[replica]
	return known && time.Since(at) < s.db.Lease/3
}

// doubtFor is how long reclaim looks for lost claims. A commit whose reply was lost may take effect
// after this process has given up waiting for it.
const doubtFor = time.Minute

// doubt notes that the database may hold claims of this process that it does not know of.
func (s *Runs) doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsure = time.Now().Add(doubtFor)
}

// reclaim makes runs due that are claimed by this replica in the database but not driven by it,
// because the reply to their claim or release was lost. Locked rows are left for the next
// heartbeat. While a claim is in progress, which looks like a lost one, reclaim does nothing.
func (s *Runs) reclaim(ctx context.Context, replica string) error {
	if !s.claiming.TryLock() {
		return nil
	}
	defer s.claiming.Unlock()
	return s.db.Do(ctx, func(ctx context.Context, q db.Querier) error {
		lost := map[string]int64{}
		err := db.Each(ctx, q, func() { clear(lost) }, func(r *sql.Rows) error {
			var root string
			var epoch int64
			if err := r.Scan(&root, &epoch); err != nil {
				return err
			}
			if j := s.journal(root); j == nil || j.epoch != epoch {
				lost[root] = epoch
			}
			return nil
		}, selectHeld, replica)
		if err != nil {
			return err
		}
		for root, epoch := range lost {
			if _, err := q.Exec(ctx, `UPDATE run SET holder = NULL, due = $4 WHERE id IN
(SELECT id FROM run WHERE id = $1 AND epoch = $2 AND holder = $3`+s.db.Skip+`)`, root, epoch, replica, s.db.Millis()); err != nil {
				return err
			}
		}
		return nil
	})
}

// Claim claims runs that are due or belong to replicas whose lease has expired, as many as room has free
// slots for. With several replicas, next is at most db.PollEvery away.
func (s *Runs) Claim(ctx context.Context, replica string, room *engine.Room) (claims []runs.Claim, next time.Time, err error) {
	if err := s.mayClaim(ctx, replica); err != nil {
		return nil, time.Time{}, err
	}
	o, err := s.outlook(ctx, replica, room)
	if err != nil {
		return nil, time.Time{}, err
	}
	if !o.abandoned {
		s.takenOver()
	}
	if o.due == 0 && !o.abandoned {
		return nil, s.db.Next(o.next, 0), nil
	}
	if claims, err = s.claimDue(ctx, replica, room, o); err != nil {
		return nil, time.Time{}, err
	}
	if len(claims) < o.due || o.due > o.few || o.abandoned { // some may be left
		after := int64(-1)
		if room.Waiting {
			after = o.now // what is due waits for a slot, not for a time
		}
		if err := s.db.Reader().Scan(ctx, []any{&o.next}, nextDue, after); err != nil {
			s.db.Log.Warn("the next due time cannot be read", zap.Error(err))
		}
	}
	return claims, s.db.Next(o.next, len(claims)), nil
}

// mayClaim returns an error if a replica can claim nothing. Otherwise its lease holds.
func (s *Runs) mayClaim(ctx context.Context, replica string) error {
	if err := s.db.Refuses(); err != nil {
		return err
	}
	if s.stale.Load() {
		return fmt.Errorf("%w: no run can be claimed before those of the process before are free", runs.ErrStorage)
	}
	if s.heardOf(replica) {
		return nil
	}
	return s.Beat(ctx, replica)
}

// outlook is what a claim can expect. Runs that become due later are claimed the next time.
type outlook struct {
	now       int64
	few       int           // how many runs may be claimed whatever their accounts are
	due       int           // how many runs are due, counted to one more than few
	next      sql.NullInt64 // when the next one is due that is not due yet
	abandoned bool          // other replicas whose lease has expired hold runs
}

// outlook reads what is due. The replica's own runs are not abandoned, because it drives them.
func (s *Runs) outlook(ctx context.Context, replica string, room *engine.Room) (*outlook, error) {
	o := &outlook{now: s.db.Millis(), few: room.Any()}
	text := `SELECT (SELECT count(*) FROM (SELECT 1 FROM run WHERE due <= $1 LIMIT $2) AS few), (SELECT min(due) FROM run WHERE due > $1)`
	args, dest := []any{o.now, int64(o.few) + 1}, []any{&o.due, &o.next}
	if !s.db.Single {
		text += `, EXISTS (SELECT 1 FROM run WHERE holder <> $3 AND holder NOT IN (SELECT id FROM replica WHERE expires > $1))`
		args, dest = append(args, replica), append(dest, &o.abandoned)
	}
	return o, s.db.Reader().Scan(ctx, dest, text, args...)
}

// claimDue claims runs and returns their claims.
func (s *Runs) claimDue(ctx context.Context, replica string, room *engine.Room, o *outlook) (claims []runs.Claim, err error) {
	s.claiming.Lock()
	defer s.claiming.Unlock()
	s.expect(map[string]bool{})
	defer s.expect(nil)
	var due map[string][]any
	do := s.db.Do
	switch {
	case o.due > o.few:
		if due, err = owners(ctx, s.db.Reader(), dueOwners, o.now); err != nil { // their number may be large
			return nil, err
		}
	case !o.abandoned:
		do = s.db.Statement
	}
	var c *claim
	tries := 0
	err = do(ctx, func(ctx context.Context, q db.Querier) error {
		tries++
		c = &claim{s: s, q: q, replica: replica, outlook: o, room: room.Clone(), owners: due}
		return c.run(ctx)
	})
	if err != nil || tries > 1 { // runs claimed by an earlier attempt are not found by the next one
		s.doubt()
	}
	if err != nil {
		return nil, err
	}
	room.Waiting = c.room.Waiting
	for holder, runs := range c.over {
		s.tookOver(ctx, holder, runs)
	}
	for _, j := range c.taken {
		claims = append(claims, s.adopt(j))
	}
	return claims, nil
}

// tookOver counts and logs the runs that a claim took over from a replica whose lease has expired. Of a replica
// with more runs than there are free slots, it logs the first claim only.
func (s *Runs) tookOver(ctx context.Context, holder string, runs int) {
	s.db.Metrics.TookOver(ctx, runs)
	s.mu.Lock()
	known := s.lost[holder]
	s.lost[holder] = true
	s.mu.Unlock()
	if known {
		return
	}
	left, err := db.Value[int](ctx, s.db.Reader(), countHeld, holder)
	if err != nil {
		s.db.Log.Warn("the runs that a lost replica still has cannot be counted", zap.Error(err))
	}
	s.db.Log.Info("took over runs of a lost replica: its lease has expired", zap.String("lost", holder), zap.Int("runs", runs), zap.Int("left", left))
}

// takenOver notes that no replica whose lease has expired has runs any more.
func (s *Runs) takenOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.lost)
}

// expect sets the map to which Deliver adds roots; nil ends that.
func (s *Runs) expect(arrivals map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrivals = arrivals
}

// adopt registers a claim in this process, and ends an earlier one of the same run. If an input has come since the
// claim, it has not woken this journal, which therefore reads its inbox.
func (s *Runs) adopt(j *journal) runs.Claim {
	s.mu.Lock()
	old, arrived := s.journals[j.root], s.arrivals[j.root]
	s.journals[j.root] = j
	s.mu.Unlock()
	j.mu.Lock()
	j.unread = j.unread || arrived
	j.ring = ring.New[entry](&s.rings, math.MaxInt)
	if j.first != nil {
		j.keeps([]entry{*j.first})
	}
	j.mu.Unlock()
	if old != nil {
		old.give()
	}
	return runs.Claim{Root: j.root, Owner: j.owner, Epoch: j.epoch, Journal: j, Bytes: j.bytes}
}

// forget removes a journal from the open ones.
func (s *Runs) forget(j *journal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.journals[j.root] == j {
		delete(s.journals, j.root)
	}
}

// Park implements engine.Leases. It first commits everything appended.
func (s *Runs) Park(ctx context.Context, c runs.Claim, p runs.Park) (next engine.Next, err error) {
	j, err := s.mine(ctx, c)
	if err != nil {
		return next, err
	}
	j.mu.Lock()
	next.Ended = j.ended
	j.mu.Unlock()
	switch {
	case p.Done && !next.Ended:
		return next, fmt.Errorf("park %s as done: its end is not recorded", c.Root)
	case !next.Ended:
		err := s.db.Do(ctx, func(ctx context.Context, q db.Querier) (err error) {
			next.At, err = j.park(ctx, q, p)
			return err
		})
		if err != nil {
			return engine.Next{}, s.kept(err)
		}
	}
	j.give() // the end has released the run already
	return next, nil
}

// ours returns the journal of a claim.
func (s *Runs) ours(c runs.Claim) (*journal, error) {
	if j, ok := c.Journal.(*journal); ok && j.s == s {
		return j, nil
	}
	return nil, fmt.Errorf("release %s: no claim of this store", c.Root)
}

// mine returns the journal of a claim after it has committed everything appended.
func (s *Runs) mine(ctx context.Context, c runs.Claim) (*journal, error) {
	j, err := s.ours(c)
	if err != nil {
		return nil, err
	}
	return j, j.Commit(ctx)
}

// park releases the run in a transaction, and returns when it is due, the zero time if it waits for an input. The run
// is due at once if its inbox holds an input, otherwise as p says.
func (j *journal) park(ctx context.Context, q db.Querier, p runs.Park) (time.Time, error) {
	due, halted := sql.NullInt64{Int64: p.Until.UnixMilli(), Valid: !p.Until.IsZero()}, int64(0)
	if p.Halts != 0 {
		var err error
		if due, err = admin.WaitsForHalt(ctx, q, j.s.db, p.Halts, due); err != nil {
			return time.Time{}, err
		}
		halted = 1
	}
	held, err := j.lockRun(ctx, q)
	if err != nil || !held {
		return j.s.db.Now(), err // an earlier attempt has released it; the replica that claims it next learns when it is due
	}
	_, err = db.Value[int](ctx, q, hasInput, j.root)
	switch {
	case err == nil:
		due = sql.NullInt64{Int64: j.s.db.Millis(), Valid: true}
	case !errors.Is(db.NotFound(err), runs.ErrNotFound):
		return time.Time{}, err
	}
	if err := j.keep(ctx, q); err != nil {
		return time.Time{}, err
	}
	return dueAt(due), db.Exec(ctx, q, db.With(parkRun, j.root, j.epoch, due, halted))
}

// dueAt returns the time of the column due, the zero time for NULL.
func dueAt(due sql.NullInt64) time.Time {
	if !due.Valid {
		return time.Time{}
	}
	return time.UnixMilli(due.Int64)
}

// lockRun locks the run's row. held is false if an earlier attempt has released the run.
func (j *journal) lockRun(ctx context.Context, q db.Querier) (held bool, err error) {
	var epoch int64
	var holder sql.NullString
	err = q.Scan(ctx, []any{&epoch, &holder}, selectHolder+j.s.db.Lock, j.root)
	if err != nil && !errors.Is(db.NotFound(err), runs.ErrNotFound) {
		return false, err
	}
	if err != nil || epoch != j.epoch {
		return false, db.Refuse(fmt.Errorf("epoch %d of %s: %w", j.epoch, j.root, agent.ErrFenced))
	}
	return holder.Valid, nil
}

// keep stores a snapshot of the task for readers while the run is parked.
func (j *journal) keep(ctx context.Context, q db.Querier) error {
	j.mu.Lock()
	if j.fold == nil || j.seq != j.durable {
		j.mu.Unlock()
		return nil
	}
	task, seq := j.fold.Task(), j.durable
	j.mu.Unlock()
	return j.putSnapshot(ctx, q, seq, task)
}

// Release implements engine.Leases. It commits everything appended if that is possible.
func (s *Runs) Release(ctx context.Context, c runs.Claim, at time.Time) (engine.Next, error) {
	j, err := s.mine(ctx, c)
	if j == nil {
		return engine.Next{}, err
	}
	if j.over() {
		return engine.Next{}, fmt.Errorf("epoch %d of %s: %w", j.epoch, j.root, agent.ErrFenced)
	}
	due := s.db.Millis()
	if !at.IsZero() {
		due = at.UnixMilli()
	}
	err = s.db.Do(ctx, func(ctx context.Context, q db.Querier) error {
		held, err := j.lockRun(ctx, q)
		if err != nil || !held {
			return err
		}
		return db.Exec(ctx, q, db.With(releaseRun, j.root, j.epoch, due))
	})
	if err == nil || errors.Is(err, agent.ErrFenced) {
		j.give()
	}
	return engine.Next{At: time.UnixMilli(due)}, s.kept(err)
}

// Suspend releases a run that must not be retried until an input arrives for it or, with SQLite,
// until the process starts again. Until then, readers of the task see reason.
func (s *Runs) Suspend(ctx context.Context, c runs.Claim, reason string) error {
	j, err := s.ours(c)
	if err != nil {
		return err
	}
	err = s.db.Run(ctx, suspendRun, j.root, j.epoch, reason)
	if err == nil {
		j.give()
	}
	return s.kept(err)
}

// kept returns the error of a claim that could not be released. Unless another replica has the run,
// the release may have taken effect all the same.
func (s *Runs) kept(err error) error {
	if err != nil && !errors.Is(err, agent.ErrFenced) {
		s.doubt()
	}
	return err
}

// over reports whether the claim has ended in this process.
func (j *journal) over() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.closed
}

// AdoptOrphans makes all claimed and all parked runs due, and releases all claims of push configurations.
// It is called when this process has just opened a database for exclusive use, so that the process
// that made the claims no longer exists.
func (s *Runs) AdoptOrphans(ctx context.Context) error {
	var runs int64
	err := s.db.Do(ctx, func(ctx context.Context, q db.Querier) (err error) {
		if runs, err = q.Exec(ctx, releaseAll, s.db.Millis()); err != nil {
			return err
		}
		return db.Exec(ctx, q, db.With(wakeParked, s.db.Millis()), db.With(push.ReleaseAll, s.db.Millis()), db.With(deleteReplicas))
	})
	if err != nil {
		return err
	}
	s.stale.Store(false)
	if runs > 0 && !s.db.Sealed {
		s.db.Log.Info("took over runs of an earlier process, which ended without handing them over", zap.Int64("runs", runs))
	}
	return nil
}

// Leave removes this process's replicas from the database, so that others can claim their runs at
// once.
func (s *Runs) Leave(ctx context.Context) error {
	s.mu.Lock()
	names := make([]any, 0, len(s.replicas))
	for name := range s.replicas {
		names = append(names, name)
	}
	s.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	return s.db.Run(ctx, `DELETE FROM replica WHERE id IN (`+db.Numbered(1, len(names))+`)`, names...)
}
