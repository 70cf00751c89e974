package sqlstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// TestP19_MigrationsNameTheOldestProgram: each migration names a schema version that exists, up to
// its own, and none before that of the previous migration.
func TestP19_MigrationsNameTheOldestProgram(t *testing.T) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	known, before := map[int64]bool{}, int64(1)
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := fs.ReadFile(migrations, name)
		if err != nil {
			t.Fatal(err)
		}
		known[version] = true
		oldest, err := oldestUserOf(fstest.MapFS{"one.sql": {Data: text}})
		if err != nil || !known[oldest] || oldest < before {
			t.Errorf("%s names schema %d, after %d: %v", name, oldest, before, err)
		}
		before = oldest
	}
	if _, err := oldestUserOf(fstest.MapFS{"one.sql": {Data: []byte("-- +goose Up\n")}}); err == nil {
		t.Error("a migration that names none is accepted")
	}
}

// TestP19_ANewerProgramBeside: a program that works with PostgreSQL stops, with an error that says why, when one with a
// later schema changes the tables. It does so before its next statement fails, and also if that fails first.
func TestP19_ANewerProgramBeside(t *testing.T) {
	known, err := knownSchema()
	if err != nil {
		t.Fatal(err)
	}
	for name, idle := range map[string]bool{"idle": true, "sending": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Open(t.Context(), pgtest.URL(t), Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }() // its tables may be locked
			if err := s.db.do(t.Context(), func(ctx context.Context, q querier) error {
				for _, text := range []string{
					`ALTER TABLE run ADD COLUMN later BIGINT NOT NULL DEFAULT 7`, `ALTER TABLE run ALTER COLUMN later DROP DEFAULT`,
					`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)`,
				} {
					if _, err := q.exec(ctx, text); err != nil {
						return err
					}
				}
				_, err := q.exec(ctx, raiseOldest, oldestSetting, oldestValue(known+1))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if idle {
				<-s.Failed()
			}
			n := a2a.New{Owner: "acme/ann", MessageID: "m", Accepted: &teamv1.Accepted{TaskId: "one", Agent: "a", Owner: "acme/ann", Message: agent.UserMessage("m", "do it")}}
			want := fmt.Sprintf("written by a newer version of team-server: its schema is 9999, this version knows %d", known)
			if _, _, err := s.Create(t.Context(), n); !errors.Is(err, a2a.ErrStorage) || !strings.Contains(err.Error(), want) {
				t.Errorf("Create = %v", err)
			}
			if err := s.Err(); !errors.Is(err, errNewer) {
				t.Errorf("Err = %v", err)
			}
		})
	}
}

// TestP19_ANewerSchema: a program uses a store with a newer schema only if the store says that it
// may, and does not copy it.
func TestP19_ANewerSchema(t *testing.T) {
	known, err := knownSchema()
	if err != nil {
		t.Fatal(err)
	}
	for name, url := range map[string]func() string{
		"sqlite":   func() string { return "sqlite:" + filepath.Join(t.TempDir(), "team.db") },
		"postgres": func() string { return pgtest.URL(t) },
	} {
		t.Run(name, func(t *testing.T) {
			at := url()
			open := func() (*Store, error) { return Open(t.Context(), at, Config{}) }
			closed := func(s *Store) {
				t.Helper()
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			change := func(text string, args ...any) func(context.Context, querier) error {
				return func(ctx context.Context, q querier) error {
					_, err := q.exec(ctx, text, args...)
					return err
				}
			}
			// newer makes a store that a program of a later version has left.
			newer := func(oldest int64) {
				t.Helper()
				s, err := open()
				if err != nil {
					t.Fatal(err)
				}
				defer closed(s)
				for _, do := range []func(context.Context, querier) error{
					change(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)`),
					change(`ALTER TABLE run ADD COLUMN later BIGINT NOT NULL DEFAULT 7`),
					change(`DELETE FROM setting WHERE name = $1`, oldestSetting),
				} {
					if err := s.db.do(t.Context(), do); err != nil {
						t.Fatal(err)
					}
				}
				if oldest > 0 {
					if err := s.db.do(t.Context(), change(raiseOldest, oldestSetting, oldestValue(oldest))); err != nil {
						t.Fatal(err)
					}
				}
			}
			for why, oldest := range map[string]int64{"no program has said so": 0, "only later programs may": known + 1} {
				at = url()
				newer(oldest)
				if _, err := open(); !errors.Is(err, errNewer) || !strings.Contains(err.Error(), fmt.Sprintf("its schema is 9999, this version knows %d; start the newer version", known)) {
					t.Errorf("%s: Open = %v", why, err)
				}
			}
			at = url()
			newer(known)
			s, err := open()
			if err != nil {
				t.Fatal(err)
			}
			n := a2a.New{Owner: "acme/ann", MessageID: "m", Accepted: &teamv1.Accepted{TaskId: "one", Agent: "a", Owner: "acme/ann", Message: agent.UserMessage("m", "do it")}}
			if _, _, err := s.Create(t.Context(), n); err != nil {
				t.Errorf("a store of schema 9999 for programs of %d and later: %v", known, err)
			}
			other, err := Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "other.db"), Config{})
			if err != nil {
				t.Fatal(err)
			}
			for _, pair := range [][2]*Store{{s, other}, {other, s}} {
				if _, err := Copy(t.Context(), pair[0], pair[1]); !errors.Is(err, errNewer) {
					t.Errorf("Copy = %v", err)
				}
			}
			closed(other)
			closed(s)
		})
	}
}

// TestP19_TheOldestProgramIsStored: a program that makes migrations stores which programs may use
// the result, and a program that knows fewer migrations does not lower it.
func TestP19_TheOldestProgramIsStored(t *testing.T) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	oldest, err := oldestUserOf(files)
	if err != nil {
		t.Fatal(err)
	}
	for name, url := range map[string]string{"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "team.db"), "postgres": pgtest.URL(t)} {
		t.Run(name, func(t *testing.T) {
			open := func(want int64) *Store {
				t.Helper()
				s, err := Open(t.Context(), url, Config{})
				if err != nil {
					t.Fatal(err)
				}
				var stored []byte
				if err := s.db.reader().scan(t.Context(), []any{&stored}, `SELECT value FROM setting WHERE name = $1`, oldestSetting); err != nil || !bytes.Equal(stored, oldestValue(want)) {
					t.Errorf("stored is %q, %v, want %d", stored, err, want)
				}
				return s
			}
			s := open(oldest)
			err := s.db.do(t.Context(), func(ctx context.Context, q querier) error {
				_, err := q.exec(ctx, raiseOldest, oldestSetting, oldestValue(9999))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := open(9999).Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
