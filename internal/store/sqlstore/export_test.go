package sqlstore

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Pragmas opens a store and returns how its writer is set up.
func Pragmas(ctx context.Context, t testing.TB, url string) (mode string, synchronous int) {
	t.Helper()
	s, err := Open(ctx, url, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = s.db.do(ctx, func(ctx context.Context, q querier) error {
		if err := q.scan(ctx, []any{&mode}, `PRAGMA journal_mode`); err != nil {
			return err
		}
		return q.scan(ctx, []any{&synchronous}, `PRAGMA synchronous`)
	})
	if err != nil {
		t.Fatal(err)
	}
	return mode, synchronous
}

// Rows counts what all tables hold.
func (s *Store) Rows(ctx context.Context, t testing.TB) (n int) {
	t.Helper()
	for _, table := range []string{"task", "run", "replica", "event", "inbox", "request", "definition", "setting", "conversation", "history", "conversation_state", "push_config", "push_dead", "catalog", "question", "halt", "halt_task", "blob"} {
		var rows int
		if err := s.db.reader().scan(ctx, []any{&rows}, `SELECT count(*) FROM `+table); err != nil {
			t.Fatal(err)
		}
		n += rows
	}
	return n
}

// Count counts the rows of a table.
func (s *Store) Count(ctx context.Context, t testing.TB, table string) (n int64) {
	t.Helper()
	if err := s.db.reader().scan(ctx, []any{&n}, `SELECT count(*) FROM `+table); err != nil {
		t.Fatal(err)
	}
	return n
}

// Groups counts the transactions of SQLite's writer.
func (s *Store) Groups() int64 { return s.db.(*sqliteDB).groups.Load() }

// CutListeners ends the connections of all replicas that listen.
func CutListeners(ctx context.Context, t testing.TB, s *Store) {
	t.Helper()
	_, err := s.db.(*postgresDB).pool.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ILIKE 'LISTEN%' AND application_name = 'team-server'`)
	if err != nil {
		t.Fatal(err)
	}
}

// Largest returns the size in bytes of the largest event or snapshot as it is stored, without its blobs.
func (s *Store) Largest(ctx context.Context, t testing.TB) (n int) {
	t.Helper()
	err := s.db.reader().scan(ctx, []any{&n}, `SELECT max(size) FROM (SELECT length(body) AS size FROM event UNION ALL SELECT length(snap) FROM task) AS sizes`)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Inline stores the events and the snapshot of a run as earlier versions did, with their blobs in them.
func (s *Store) Inline(ctx context.Context, t testing.TB, root string) {
	t.Helper()
	rows := map[int64][]byte{}
	err := each(ctx, s.db.reader(), func() {}, func(r *sql.Rows) error {
		var seq int64
		var record []byte
		err := r.Scan(&seq, &record)
		rows[seq] = record
		return err
	}, `SELECT seq, body FROM event WHERE id = $1 UNION ALL SELECT 0, snap FROM task WHERE id = $1`, root)
	if err != nil {
		t.Fatal(err)
	}
	err = s.db.do(ctx, func(ctx context.Context, q querier) error {
		for seq, record := range rows {
			body, err := s.joined(ctx, s.db.reader(), root, seq, record)
			if err != nil {
				return err
			}
			if seq == 0 {
				_, err = q.exec(ctx, `UPDATE task SET snap = $2 WHERE id = $1`, root, body)
			} else {
				_, err = q.exec(ctx, `UPDATE event SET body = $3 WHERE id = $1 AND seq = $2`, root, seq, body)
			}
			if err != nil {
				return err
			}
		}
		_, err := q.exec(ctx, `DELETE FROM blob WHERE id = $1`, root)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Exec changes the database behind the store's back.
func (s *Store) Exec(ctx context.Context, t testing.TB, text string) {
	t.Helper()
	err := s.db.do(ctx, func(ctx context.Context, q querier) error {
		_, err := q.exec(ctx, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Downgrade brings the schema back to that of an older version of the program.
func (s *Store) Downgrade(ctx context.Context, t testing.TB, version int) {
	t.Helper()
	files, err := migrations.ReadDir("migrations")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range slices.Backward(files) {
		n, err := strconv.Atoi(f.Name()[:5])
		if err != nil || n <= version {
			continue
		}
		text, err := migrations.ReadFile("migrations/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		_, down, _ := strings.Cut(string(text), "-- +goose Down")
		for _, statement := range strings.Split(down, ";\n") {
			if strings.TrimSpace(statement) != "" {
				s.Exec(ctx, t, statement)
			}
		}
		s.Exec(ctx, t, "DELETE FROM goose_db_version WHERE version_id = "+strconv.Itoa(n))
	}
}

// AdoptKey makes the first configured key encrypt, if it may.
func (s *Store) AdoptKey(ctx context.Context) error { return s.adoptKey(ctx) }

// EncryptionPass does once what the background work of a store does with its secrets.
func (s *Store) EncryptionPass(ctx context.Context) error {
	return (&encryption{s: s}).pass(ctx)
}

// SealedUnder returns how many stored secrets each key has encrypted, by its id; "" is the key in the store.
func (s *Store) SealedUnder(ctx context.Context, t testing.TB) map[string]int {
	t.Helper()
	n := map[string]int{}
	err := each(ctx, s.db.reader(), func() { clear(n) }, func(r *sql.Rows) error {
		var body []byte
		err := r.Scan(&body)
		id, _ := parseSealed(body)
		n[id]++
		return err
	}, `SELECT body FROM push_config UNION ALL SELECT value FROM setting WHERE name = 'page_token_key'`)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Registered returns the ids of the keys under which secrets may be encrypted.
func (s *Store) Registered(ctx context.Context, t testing.TB) []string {
	t.Helper()
	known, err := s.registered(ctx, s.db.reader())
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(known))
}
