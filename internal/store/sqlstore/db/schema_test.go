package db

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
	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
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
			s := opened(t, pgtest.URL(t))
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go s.Heal(ctx, func() bool { return false }, s.Touch)
			exec(t, s, With(`ALTER TABLE run ADD COLUMN later BIGINT NOT NULL DEFAULT 7`), With(`ALTER TABLE run ALTER COLUMN later DROP DEFAULT`),
				With(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)`), With(raiseOldest, oldestSetting, oldestValue(known+1)))
			if idle {
				<-s.Failed()
			}
			want := fmt.Sprintf("written by a newer version of team-server: its schema is 9999, this version knows %d", known)
			insert := &Op{Stmts: []Stmt{With(`INSERT INTO run (id, owner, seq, bytes) VALUES ('one', 'acme/ann', 1, 1)`)}}
			if err := s.Await(t.Context(), insert); !errors.Is(err, runs.ErrStorage) || !strings.Contains(err.Error(), want) {
				t.Errorf("a write: %v", err)
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
			open := func() (*DB, error) { return Open(t.Context(), at, Config{Log: zap.NewNop()}) }
			// newer makes a store that a program of a later version has left.
			newer := func(oldest int64) {
				t.Helper()
				s := opened(t, at)
				exec(t, s, With(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)`), With(`ALTER TABLE run ADD COLUMN later BIGINT NOT NULL DEFAULT 7`),
					With(`DELETE FROM setting WHERE name = $1`, oldestSetting))
				if oldest > 0 {
					exec(t, s, With(raiseOldest, oldestSetting, oldestValue(oldest)))
				}
				closed(t, s)
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
			if err := s.Touch(t.Context()); err != nil {
				t.Errorf("a store of schema 9999 for programs of %d and later: %v", known, err)
			}
			if err := s.CheckCurrent(t.Context()); !errors.Is(err, errNewer) {
				t.Errorf("it is copied: %v", err)
			}
			closed(t, s)
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
			open := func(want int64) *DB {
				t.Helper()
				s := opened(t, url)
				stored, err := setting(t.Context(), s.Reader(), oldestSetting)
				if err != nil || !bytes.Equal(stored, oldestValue(want)) {
					t.Errorf("stored is %q, %v, want %d", stored, err, want)
				}
				return s
			}
			s := open(oldest)
			exec(t, s, With(raiseOldest, oldestSetting, oldestValue(9999)))
			closed(t, s)
			closed(t, open(9999))
		})
	}
}
