package admin

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/halt"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/record"
)

// haltTopic is the topic of notifications that the halts have changed, or that a replica has
// acknowledged them. No root task has this form of id.
const haltTopic = "~halt"

// Halts are the halts, and what they have reached. It implements halt.Store.
type Halts struct{ DB *db.DB }

// Statements of halts, of the runs that they reach, and of the replicas that apply them.
const (
	selectHalt        = `SELECT body, version FROM halt WHERE kind = $1 AND name = $2`
	selectHalts       = `SELECT body, version FROM halt`
	selectHaltVersion = `SELECT version FROM halt_version`
	setHaltVersion    = `UPDATE halt_version SET version = $1`
	deleteReplaced    = `DELETE FROM halt_task WHERE version IN (SELECT version FROM halt WHERE kind = $1 AND name = $2)`
	putHalt           = `INSERT INTO halt (kind, name, version, body) VALUES ($1, $2, $3, $4)
ON CONFLICT (kind, name) DO UPDATE SET version = excluded.version, body = excluded.body`
	wakeHalted      = `UPDATE run SET due = $1, halted = 0 WHERE halted = 1 AND holder IS NULL AND ended IS NULL`
	deleteHalt      = `DELETE FROM halt WHERE version = $1`
	deleteHaltTasks = `DELETE FROM halt_task WHERE version = $1`
	acknowledge     = `INSERT INTO replica (id, expires, halts) VALUES ($1, 0, $2) ON CONFLICT (id) DO UPDATE SET halts = excluded.halts`
	insertHalted    = `INSERT INTO halt_task (version, id, owner) SELECT $1, $2, $3 FROM halt WHERE version = $1
ON CONFLICT (version, id) DO NOTHING`
	selectHeldBehind = `SELECT run.id, run.owner, run.holder FROM run JOIN replica ON replica.id = run.holder
WHERE run.ended IS NULL AND replica.halts < $1 AND replica.id <> $2 ORDER BY run.id LIMIT $3`
	selectApplied   = `SELECT id FROM replica WHERE halts >= $1`
	selectBehind    = `SELECT id FROM replica WHERE halts < $1 AND expires > $2 AND id <> $3 ORDER BY id`
	countHaltTasks  = `SELECT count(*) FROM halt_task WHERE version = $1`
	selectHaltTasks = `SELECT id, owner FROM halt_task WHERE version = $1 ORDER BY id LIMIT $2`
)

// haltLag is how long a run waits that was paused by a replica that has not seen the last change of
// the halts.
const haltLag = 200 // milliseconds

// Halts implements halt.Store.
func (s *Halts) Halts(ctx context.Context) (halt.Snapshot, error) {
	q := s.DB.Reader()
	for { // the reads are consistent if the version is the same before and after
		before, err := haltVersion(ctx, q, "")
		if err != nil {
			return halt.Snapshot{}, err
		}
		snap := halt.Snapshot{Version: before}
		snap.Halts, err = db.List(ctx, q, func(rows *sql.Rows) (*teamv1.Halt, error) { return scanHalt(rows.Scan) }, selectHalts)
		if err != nil {
			return halt.Snapshot{}, err
		}
		if after, err := haltVersion(ctx, q, ""); err != nil || after == before {
			slices.SortFunc(snap.Halts, func(a, b *teamv1.Halt) int { return cmp.Compare(a.GetVersion(), b.GetVersion()) })
			return snap, err
		}
	}
}

// scanHalt reads the columns body and version of a halt.
func scanHalt(scan func(...any) error) (*teamv1.Halt, error) {
	var body []byte
	var version int64
	if err := scan(&body, &version); err != nil {
		return nil, err
	}
	h := &teamv1.Halt{}
	if err := proto.Unmarshal(body, h); err != nil {
		return nil, fmt.Errorf("%w: a halt cannot be decoded: %w", runs.ErrDataLoss, err)
	}
	h.Version = version
	return h, nil
}

// HaltVersion implements halt.Store.
func (s *Halts) HaltVersion(ctx context.Context) (int64, error) {
	return haltVersion(ctx, s.DB.Reader(), "")
}

// haltVersion reads the version of the halts, with a clause that may lock it.
func haltVersion(ctx context.Context, q db.Querier, lock string) (version int64, err error) {
	err = q.Scan(ctx, []any{&version}, selectHaltVersion+lock)
	return version, err
}

// nextHaltVersion increments the version of the halts. Its row is locked before all rows of runs, so
// that transactions do not wait for each other.
func (s *Halts) nextHaltVersion(ctx context.Context, q db.Querier) (int64, error) {
	version, err := haltVersion(ctx, q, s.DB.Lock)
	if err != nil {
		return 0, err
	}
	_, err = q.Exec(ctx, setHaltVersion, version+1)
	return version + 1, err
}

// Halt implements halt.Store.
func (s *Halts) Halt(ctx context.Context, h *teamv1.Halt, may halt.May) error {
	body, err := proto.Marshal(h)
	if err != nil {
		return err
	}
	var version int64
	err = Change(ctx, s.DB, func(ctx context.Context, q db.Querier) error {
		var err error
		if version, err = s.nextHaltVersion(ctx, q); err != nil {
			return err
		}
		if may != nil {
			present, err := haltOf(ctx, q, h.GetKind(), halt.KeyOf(h))
			if err != nil {
				return err
			}
			if err := may(present); err != nil {
				return err
			}
		}
		kind, key := int64(h.GetKind()), halt.KeyOf(h)
		err = db.Exec(ctx, q, db.With(deleteReplaced, kind, key), db.With(putHalt, kind, key, version, body),
			db.With(wakeHalted, s.DB.Millis())) // they may wait for the halt that is replaced
		if err != nil {
			return err
		}
		return s.reachRuns(ctx, q, h, version)
	})
	if err != nil {
		return err
	}
	h.Version = version
	s.DB.Announce(haltTopic, store.AllOwners)
	return nil
}

// haltOf reads a halt; it returns nil if the halt is not in force.
func haltOf(ctx context.Context, q db.Querier, kind teamv1.HaltKind, key string) (*teamv1.Halt, error) {
	h, err := scanHalt(func(to ...any) error {
		return q.Scan(ctx, to, selectHalt, int64(kind), key)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil //nolint:nilnil // it is not in force
	}
	return h, err
}

// ReachRuns implements halt.Store.
func (s *Halts) ReachRuns(ctx context.Context, h *teamv1.Halt) error {
	return s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
		if _, err := haltVersion(ctx, q, s.DB.Lock); err != nil {
			return err
		}
		return s.reachRuns(ctx, q, h, h.GetVersion())
	})
}

// ofAgent is the condition for rows of run whose agent has the key $1. It reads only the tasks of the rows that are left.
const ofAgent = `EXISTS (SELECT 1 FROM task WHERE task.id = run.id AND ` + record.AgentKey + ` = $1)`

// reachRuns records the open runs that a halt covers as a whole. If the halt cancels runs, it makes those
// due that no process has claimed.
func (s *Halts) reachRuns(ctx context.Context, q db.Querier, h *teamv1.Halt, version int64) error {
	var covered string
	name := h.GetName()
	switch h.GetKind() {
	case teamv1.HaltKind_HALT_KIND_SERVER:
		covered = `$1 = ''`
	case teamv1.HaltKind_HALT_KIND_ACCOUNT:
		name += "/"
		covered = `substr(owner, 1, length($1)) = $1`
	case teamv1.HaltKind_HALT_KIND_OWNER:
		covered = `owner = $1`
	case teamv1.HaltKind_HALT_KIND_TEAM, teamv1.HaltKind_HALT_KIND_AGENT:
		name = halt.KeyOf(h)
		covered = ofAgent
	default:
		return nil // a model or a tool covers no whole run
	}
	covered = ` FROM run WHERE ended IS NULL AND ` + covered
	insert, args := `INSERT INTO halt_task (version, id, owner) SELECT CAST($2 AS BIGINT), id, owner`+covered, []any{name, version}
	if h.GetPause() {
		insert, args = insert+` AND (holder IS NOT NULL OR due <= $3)`, append(args, s.DB.Millis())
	}
	if _, err := q.Exec(ctx, insert+` ON CONFLICT (version, id) DO NOTHING`, args...); err != nil || h.GetPause() {
		return err
	}
	return db.Exec(ctx, q, db.With(`UPDATE run SET due = $2 WHERE holder IS NULL AND (due IS NULL OR due > $2) AND id IN (SELECT id`+covered+`)`, name, s.DB.Millis()))
}

// EndHalt implements halt.Store.
func (s *Halts) EndHalt(ctx context.Context, kind teamv1.HaltKind, key string, may halt.May) (*teamv1.Halt, error) {
	var h *teamv1.Halt
	err := ChangeIf(ctx, s.DB, func(ctx context.Context, q db.Querier) (bool, error) {
		if _, err := haltVersion(ctx, q, s.DB.Lock); err != nil {
			return false, err
		}
		present, err := haltOf(ctx, q, kind, key)
		if err != nil || present == nil {
			return false, err // or an attempt before this one has ended it, and h is set
		}
		if err := may.Allow(present); err != nil {
			return false, err
		}
		h = present
		version := h.GetVersion()
		if _, err := s.nextHaltVersion(ctx, q); err != nil {
			return false, err
		}
		return true, db.Exec(ctx, q, db.With(deleteHalt, version), db.With(deleteHaltTasks, version), db.With(wakeHalted, s.DB.Millis()))
	})
	if err != nil {
		return nil, err
	}
	s.DB.Announce(haltTopic, store.AllOwners)
	return h, nil
}

// AcknowledgeHalts implements halt.Store.
func (s *Halts) AcknowledgeHalts(ctx context.Context, replica string, version int64, stopped map[int64][]halt.Task) error {
	err := s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
		for by, tasks := range stopped {
			if err := recordHalted(ctx, q, by, tasks); err != nil {
				return err
			}
		}
		return db.Exec(ctx, q, db.With(acknowledge, replica, version))
	})
	if err != nil {
		return err
	}
	s.DB.Announce(haltTopic, store.AllOwners)
	return nil
}

// recordHalted records what the halt with a version has stopped, if it is in force.
func recordHalted(ctx context.Context, q db.Querier, version int64, tasks []halt.Task) error {
	var stmts []db.Stmt
	for _, t := range tasks {
		stmts = append(stmts, db.With(insertHalted, version, t.ID, t.Owner))
	}
	return db.Exec(ctx, q, stmts...)
}

// RecordHalted implements halt.Store.
func (s *Halts) RecordHalted(ctx context.Context, version int64, tasks []halt.Task) error {
	return s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error { return recordHalted(ctx, q, version, tasks) })
}

// HeldBehind implements halt.Store.
func (s *Halts) HeldBehind(ctx context.Context, version int64, self string, limit int) ([]halt.Held, error) {
	return db.Rows(ctx, s.DB.Reader(), func(h *halt.Held) []any { return []any{&h.ID, &h.Owner, &h.Replica} }, selectHeldBehind, version, self, int64(limit))
}

// HaltsApplied implements halt.Store.
func (s *Halts) HaltsApplied(ctx context.Context, version int64) ([]string, error) {
	return db.Values[string](ctx, s.DB.Reader(), selectApplied, version)
}

// HaltsBehind implements halt.Store.
func (s *Halts) HaltsBehind(ctx context.Context, version int64, self string) ([]string, error) {
	return db.Values[string](ctx, s.DB.Reader(), selectBehind, version, s.DB.Millis(), self)
}

// HaltedTasks implements halt.Store.
func (s *Halts) HaltedTasks(ctx context.Context, version int64, limit int) (tasks []halt.Task, total int, err error) {
	q := s.DB.Reader()
	if err := q.Scan(ctx, []any{&total}, countHaltTasks, version); err != nil {
		return nil, 0, err
	}
	tasks, err = db.Rows(ctx, q, func(t *halt.Task) []any { return []any{&t.ID, &t.Owner} }, selectHaltTasks, version, int64(limit))
	return tasks, total, err
}

// WatchHalts implements halt.Store. Changes by other replicas wake the channel over PostgreSQL.
func (s *Halts) WatchHalts() (wake <-chan struct{}, stop func()) { return s.DB.Watch(haltTopic) }

// WaitsForHalt returns when a run is due that is parked until a time because a halt has paused it:
// soon, if the halts have changed since the version that its driver has seen. It locks the version
// until the end of the transaction, so that the end of a halt finds the run.
func WaitsForHalt(ctx context.Context, q db.Querier, d *db.DB, seen int64, until sql.NullInt64) (sql.NullInt64, error) {
	version, err := haltVersion(ctx, q, d.Lock)
	if err != nil || version == seen {
		return until, err
	}
	return sql.NullInt64{Int64: d.Millis() + haltLag, Valid: true}, nil
}

// LockVersion locks the version of the halts until the transaction ends, so that only one replica counts runs at a time.
func LockVersion(ctx context.Context, q db.Querier, d *db.DB) error {
	_, err := haltVersion(ctx, q, d.Lock)
	return err
}
