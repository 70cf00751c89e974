package cli_test

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// TestStoreCommandErrors: errors begin with the file or the store that they are about, and say what to do.
func TestStoreCommandErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	store, err := sqlstore.Open(t.Context(), "sqlite:team.db", sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlstore.Backup(t.Context(), "sqlite:team.db", "team.bak", false, nil); err != nil {
		t.Fatal(err)
	}
	interrupted, cancel := context.WithCancelCause(t.Context())
	cancel(cli.ErrInterrupted)
	for _, c := range []struct {
		name, want string
		code       int
		do         func(s *cli.Shell) error
	}{
		{"no backup", "the file nope does not exist; check the path\n", cli.ExitFailed, func(s *cli.Shell) error {
			return s.Restore(t.Context(), "nope", "sqlite:new.db")
		}},
		{"folder", ". is not a regular file; name the file of a backup\n", cli.ExitFailed, func(s *cli.Shell) error {
			return s.Restore(t.Context(), ".", "sqlite:new.db")
		}},
		{"exists", "team.bak exists already; name another file, or replace an older backup with --force\n", cli.ExitFailed, func(s *cli.Shell) error {
			return s.Backup(t.Context(), "sqlite:team.db", "team.bak", false)
		}},
		{"the store itself", "team.db is the store itself; name another file for the backup\n", cli.ExitFailed, func(s *cli.Shell) error {
			return s.Backup(t.Context(), "sqlite:team.db", "team.db", true)
		}},
		{"interrupted restoration", "interrupted\n", cli.ExitInterrupted, func(s *cli.Shell) error {
			return s.Restore(interrupted, "team.bak", "sqlite:new.db")
		}},
		{"interrupted backup", "interrupted\n", cli.ExitInterrupted, func(s *cli.Shell) error {
			return s.Backup(interrupted, "sqlite:team.db", "new.bak", false)
		}},
		{"interrupted statistics", "interrupted\n", cli.ExitInterrupted, func(s *cli.Shell) error {
			return s.StoreStats(interrupted, "sqlite:team.db", 1, time.Minute)
		}},
		{"no time", "sqlite:team.db: the store could not be opened within 1ns; allow more time with --timeout\n", cli.ExitFailed, func(s *cli.Shell) error {
			return s.StoreStats(t.Context(), "sqlite:team.db", 1, 1)
		}},
		{"doctor without time", "--timeout 0s: expected more than 0\nSee team-server --help\n", cli.ExitUsage, func(s *cli.Shell) error {
			return s.Doctor(t.Context(), "team.yaml", cli.Doctor{})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var said bytes.Buffer
			s := &cli.Shell{Out: io.Discard, Talk: &said}
			if code := s.Exit(c.do(s)); code != c.code || said.String() != c.want {
				t.Errorf("exit code %d, want %d: %q, want %q", code, c.code, said.String(), c.want)
			}
		})
	}
	if left, err := filepath.Glob("*"); err != nil || strings.Join(left, " ") != "team.bak team.db team.db.lock" {
		t.Errorf("left are %v, %v", left, err)
	}
}
