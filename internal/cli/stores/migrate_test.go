package stores_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/cli/stores"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// TestMigrate copies a store once; the second time the target is not empty.
func TestMigrate(t *testing.T) {
	dir := t.TempDir()
	from, to := store.SQLite+filepath.Join(dir, "from.db"), store.SQLite+filepath.Join(dir, "to.db")
	source, err := sqlstore.Open(t.Context(), from, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := source.PutDefinition(t.Context(), "r1", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := source.Close(); err != nil {
		t.Fatal(err)
	}
	var out, talk strings.Builder
	s := &cli.Shell{Console: console.Console{Out: &out, Talk: &talk}}
	if err := (&stores.Commands{Console: &s.Console}).Migrate(t.Context(), from, to); err != nil || !strings.HasPrefix(out.String(), "copied 1 rows from sqlite:") {
		t.Fatalf("%q, %v", out.String(), err)
	}
	if err := (&stores.Commands{Console: &s.Console}).Migrate(t.Context(), from, to); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("copied to a store that is not empty: %v", err)
	}
	if err := (&stores.Commands{Console: &s.Console}).Migrate(t.Context(), from, from); s.Exit(err) != cli.ExitUsage {
		t.Errorf("copied a store to itself: %v", err)
	}
}
