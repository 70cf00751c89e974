package sqlstore

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
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
)

// haltTopic is the topic of notifications that the halts have changed, or that a replica has
// acknowledged them. No root task has this form of id.
const haltTopic = "~halt"

// haltLag is how long a run waits that was paused by a replica that has not seen the last change of
// the halts.
const haltLag = 200 // milliseconds

// Halts implements halt.Store.
func (s *Store) Halts(ctx context.Context) (halt.Snapshot, error) {
	q := s.db.reader()
	for { // the reads are consistent if the version is the same before and after
		before, err := haltVersion(ctx, q, "")
		if err != nil {
			return halt.Snapshot{}, err
		}
		snap := halt.Snapshot{Version: before}
		err = each(ctx, q, func() { snap.Halts = nil }, func(rows *sql.Rows) error {
			h, err := scanHalt(rows.Scan)
			snap.Halts = append(snap.Halts, h)
			return err
		}, `SELECT body, version FROM halt`)
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
		return nil, fmt.Errorf("%w: a halt cannot be decoded: %w", a2a.ErrDataLoss, err)
	}
	h.Version = version
	return h, nil
}

// HaltVersion implements halt.Store.
func (s *Store) HaltVersion(ctx context.Context) (int64, error) {
	return haltVersion(ctx, s.db.reader(), "")
}

// haltVersion reads the version of the halts, with a clause that may lock it.
func haltVersion(ctx context.Context, q querier, lock string) (version int64, err error) {
	err = q.scan(ctx, []any{&version}, `SELECT version FROM halt_version`+lock)
	return version, err
}

// nextHaltVersion increments the version of the halts. Its row is locked before all rows of runs, so
// that transactions do not wait for each other.
func (s *Store) nextHaltVersion(ctx context.Context, q querier) (int64, error) {
	version, err := haltVersion(ctx, q, s.db.lock())
	if err != nil {
		return 0, err
	}
	_, err = q.exec(ctx, `UPDATE halt_version SET version = $1`, version+1)
	return version + 1, err
}

// Halt implements halt.Store.
func (s *Store) Halt(ctx context.Context, h *teamv1.Halt, may halt.May) error {
	body, err := proto.Marshal(h)
	if err != nil {
		return err
	}
	var version int64
	err = s.change(ctx, func(ctx context.Context, q querier) error {
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
		if _, err := q.exec(ctx, `DELETE FROM halt_task WHERE version IN (SELECT version FROM halt WHERE kind = $1 AND name = $2)`, int64(h.GetKind()), halt.KeyOf(h)); err != nil {
			return err
		}
		if _, err := q.exec(ctx, `INSERT INTO halt (kind, name, version, body) VALUES ($1, $2, $3, $4)
ON CONFLICT (kind, name) DO UPDATE SET version = excluded.version, body = excluded.body`, int64(h.GetKind()), halt.KeyOf(h), version, body); err != nil {
			return err
		}
		if err := s.wakeHalted(ctx, q); err != nil { // they may wait for the halt that is replaced
			return err
		}
		return s.reachRuns(ctx, q, h, version)
	})
	if err != nil {
		return s.unrecorded(err)
	}
	h.Version = version
	s.announce(haltTopic, store.Everybody)
	return nil
}

// haltOf reads a halt; it returns nil if the halt is not in force.
func haltOf(ctx context.Context, q querier, kind teamv1.HaltKind, key string) (*teamv1.Halt, error) {
	h, err := scanHalt(func(to ...any) error {
		return q.scan(ctx, to, `SELECT body, version FROM halt WHERE kind = $1 AND name = $2`, int64(kind), key)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil //nolint:nilnil // it is not in force
	}
	return h, err
}

// ReachRuns implements halt.Store.
func (s *Store) ReachRuns(ctx context.Context, h *teamv1.Halt) error {
	return s.unrecorded(s.db.do(ctx, func(ctx context.Context, q querier) error {
		if _, err := haltVersion(ctx, q, s.db.lock()); err != nil {
			return err
		}
		return s.reachRuns(ctx, q, h, h.GetVersion())
	}))
}

// ofAgent is the condition for rows of run whose agent has the key $1. It reads only the tasks of the rows that are left.
const ofAgent = `EXISTS (SELECT 1 FROM task WHERE task.id = run.id AND ` + agentKey + ` = $1)`

// reachRuns records the open runs that a halt covers as a whole. If the halt cancels runs, it makes those
// due that no process has claimed.
func (s *Store) reachRuns(ctx context.Context, q querier, h *teamv1.Halt, version int64) error {
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
		insert, args = insert+` AND (holder IS NOT NULL OR due <= $3)`, append(args, s.now())
	}
	if _, err := q.exec(ctx, insert+` ON CONFLICT (version, id) DO NOTHING`, args...); err != nil || h.GetPause() {
		return err
	}
	_, err := q.exec(ctx, `UPDATE run SET due = $2 WHERE holder IS NULL AND (due IS NULL OR due > $2) AND id IN (SELECT id`+covered+`)`, name, s.now())
	return err
}

// wakeHalted makes the runs due that wait for the end of a halt.
func (s *Store) wakeHalted(ctx context.Context, q querier) error {
	_, err := q.exec(ctx, `UPDATE run SET due = $1, halted = 0 WHERE halted = 1 AND holder IS NULL AND ended IS NULL`, s.now())
	return err
}

// EndHalt implements halt.Store.
func (s *Store) EndHalt(ctx context.Context, kind teamv1.HaltKind, key string, may halt.May) (*teamv1.Halt, error) {
	var h *teamv1.Halt
	err := s.changeIf(ctx, func(ctx context.Context, q querier) (bool, error) {
		if _, err := haltVersion(ctx, q, s.db.lock()); err != nil {
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
		for _, text := range []string{`DELETE FROM halt WHERE version = $1`, `DELETE FROM halt_task WHERE version = $1`} {
			if _, err := q.exec(ctx, text, version); err != nil {
				return false, err
			}
		}
		if _, err := s.nextHaltVersion(ctx, q); err != nil {
			return false, err
		}
		return true, s.wakeHalted(ctx, q)
	})
	if err != nil {
		return nil, s.unrecorded(err)
	}
	s.announce(haltTopic, store.Everybody)
	return h, nil
}

// AcknowledgeHalts implements halt.Store.
func (s *Store) AcknowledgeHalts(ctx context.Context, replica string, version int64, stopped map[int64][]halt.Task) error {
	err := s.db.do(ctx, func(ctx context.Context, q querier) error {
		for by, tasks := range stopped {
			if err := recordHalted(ctx, q, by, tasks); err != nil {
				return err
			}
		}
		_, err := q.exec(ctx, `INSERT INTO replica (id, expires, halts) VALUES ($1, 0, $2) ON CONFLICT (id) DO UPDATE SET halts = excluded.halts`, replica, version)
		return err
	})
	if err != nil {
		return s.unrecorded(err)
	}
	s.announce(haltTopic, store.Everybody)
	return nil
}

// recordHalted records what the halt with a version has stopped, if it is in force.
func recordHalted(ctx context.Context, q querier, version int64, tasks []halt.Task) error {
	for _, t := range tasks {
		if _, err := q.exec(ctx, `INSERT INTO halt_task (version, id, owner) SELECT $1, $2, $3 FROM halt WHERE version = $1
ON CONFLICT (version, id) DO NOTHING`, version, t.ID, t.Owner); err != nil {
			return err
		}
	}
	return nil
}

// RecordHalted implements halt.Store.
func (s *Store) RecordHalted(ctx context.Context, version int64, tasks []halt.Task) error {
	return s.unrecorded(s.db.do(ctx, func(ctx context.Context, q querier) error { return recordHalted(ctx, q, version, tasks) }))
}

// HeldBehind implements halt.Store.
func (s *Store) HeldBehind(ctx context.Context, version int64, self string, limit int) (runs []halt.Held, err error) {
	err = each(ctx, s.db.reader(), func() { runs = nil }, func(rows *sql.Rows) error {
		var h halt.Held
		err := rows.Scan(&h.ID, &h.Owner, &h.Replica)
		runs = append(runs, h)
		return err
	}, `SELECT run.id, run.owner, run.holder FROM run JOIN replica ON replica.id = run.holder
WHERE run.ended IS NULL AND replica.halts < $1 AND replica.id <> $2 ORDER BY run.id LIMIT $3`, version, self, int64(limit))
	return runs, err
}

// HaltsApplied implements halt.Store.
func (s *Store) HaltsApplied(ctx context.Context, version int64) (replicas []string, err error) {
	err = each(ctx, s.db.reader(), func() { replicas = nil }, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		replicas = append(replicas, id)
		return err
	}, `SELECT id FROM replica WHERE halts >= $1`, version)
	return replicas, err
}

// HaltsBehind implements halt.Store.
func (s *Store) HaltsBehind(ctx context.Context, version int64, self string) (behind []string, err error) {
	err = each(ctx, s.db.reader(), func() { behind = nil }, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		behind = append(behind, id)
		return err
	}, `SELECT id FROM replica WHERE halts < $1 AND expires > $2 AND id <> $3 ORDER BY id`, version, s.now(), self)
	return behind, err
}

// HaltedTasks implements halt.Store.
func (s *Store) HaltedTasks(ctx context.Context, version int64, limit int) (tasks []halt.Task, total int, err error) {
	q := s.db.reader()
	if err := q.scan(ctx, []any{&total}, `SELECT count(*) FROM halt_task WHERE version = $1`, version); err != nil {
		return nil, 0, err
	}
	err = each(ctx, q, func() { tasks = nil }, func(rows *sql.Rows) error {
		var t halt.Task
		err := rows.Scan(&t.ID, &t.Owner)
		tasks = append(tasks, t)
		return err
	}, `SELECT id, owner FROM halt_task WHERE version = $1 ORDER BY id LIMIT $2`, version, int64(limit))
	return tasks, total, err
}

// WatchHalts implements halt.Store. Changes by other replicas wake the channel over PostgreSQL.
func (s *Store) WatchHalts() (wake <-chan struct{}, stop func()) { return s.hub.watch(haltTopic) }

// waitsForHalt returns when a run is due that is parked until a time because a halt has paused it:
// soon, if the halts have changed since the version that its driver has seen. It locks the version
// until the end of the transaction, so that the end of a halt finds the run.
func (s *Store) waitsForHalt(ctx context.Context, q querier, seen int64, until sql.NullInt64) (sql.NullInt64, error) {
	version, err := haltVersion(ctx, q, s.db.lock())
	if err != nil || version == seen {
		return until, err
	}
	return sql.NullInt64{Int64: s.now() + haltLag, Valid: true}, nil
}

// takeHaltVersion sets the version to that of the store from which the halts were copied.
func (s *Store) takeHaltVersion(ctx context.Context, from *Store) error {
	version, err := from.HaltVersion(ctx)
	if err != nil {
		return err
	}
	return s.db.do(ctx, func(ctx context.Context, q querier) error {
		_, err := q.exec(ctx, `UPDATE halt_version SET version = $1`, version)
		return err
	})
}
