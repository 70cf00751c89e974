package stores_test

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/cli/stores"
	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// TestStoreCommandErrors: errors begin with the store that they are about, and say what to do.
func TestStoreCommandErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	store, err := sqlstore.Open(t.Context(), "sqlite:team.db", sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	interrupted, cancel := context.WithCancelCause(t.Context())
	cancel(console.ErrInterrupted)
	for _, c := range []struct {
		name, want string
		code       int
		do         func(s *cli.Shell) error
	}{
		{"no store", "sqlite:nope.db: the file nope.db does not exist; check the path\n", cli.ExitFailed, func(s *cli.Shell) error {
			return (&stores.Commands{Console: &s.Console}).Backup(t.Context(), "sqlite:nope.db", "new.bak")
		}},
		{"the store itself", "sqlite:team.db: the file team.db exists; name a new one for the backup\n", cli.ExitFailed, func(s *cli.Shell) error {
			return (&stores.Commands{Console: &s.Console}).Backup(t.Context(), "sqlite:team.db", "team.db")
		}},
		{"postgres", "backup copies SQLite stores; make backups of PostgreSQL with pg_dump or with archived logs, see docs/operation.md\nSee team-server --help\n", cli.ExitUsage, func(s *cli.Shell) error {
			return (&stores.Commands{Console: &s.Console}).Backup(t.Context(), "postgres://ann@db.example/team", "new.bak")
		}},
		{"interrupted", "interrupted\n", cli.ExitInterrupted, func(s *cli.Shell) error {
			return (&stores.Commands{Console: &s.Console}).Backup(interrupted, "sqlite:team.db", "new.bak")
		}},
		{"doctor without time", "--timeout 0s: expected more than 0\nSee team-server --help\n", cli.ExitUsage, func(s *cli.Shell) error {
			return s.Doctor(t.Context(), "team.yaml", cli.Doctor{})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var said bytes.Buffer
			s := &cli.Shell{Console: console.Console{Out: io.Discard, Talk: &said}}
			if code := s.Exit(c.do(s)); code != c.code || said.String() != c.want {
				t.Errorf("exit code %d, want %d: %q, want %q", code, c.code, said.String(), c.want)
			}
		})
	}
	if left, err := filepath.Glob("*"); err != nil || strings.Join(left, " ") != "team.db team.db.lock" {
		t.Errorf("left are %v, %v", left, err)
	}
}
