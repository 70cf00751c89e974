package db

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/testkit/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// opened opens a database, which the test may close.
func opened(t testing.TB, url string) *DB {
	t.Helper()
	d, err := Open(context.Background(), url, Config{Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func fileURL(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "team.db") }

func closed(t testing.TB, d *DB) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func exec(t testing.TB, d *DB, stmts ...Stmt) {
	t.Helper()
	err := d.Do(context.Background(), func(ctx context.Context, q Querier) error { return Exec(ctx, q, stmts...) })
	if err != nil {
		t.Fatal(err)
	}
}

// made makes a record of the size of a small task.
func made(t testing.TB, d *DB, name string) {
	t.Helper()
	exec(t, d, With(`INSERT INTO definition (revision, at, body) VALUES ($1, 1, $2)`, name, []byte(strings.Repeat("x", 1000))))
}

// has reports whether there is a record.
func has(t testing.TB, d *DB, name string) bool {
	t.Helper()
	var n int
	if err := d.Reader().Scan(context.Background(), []any{&n}, `SELECT count(*) FROM definition WHERE revision = $1`, name); err != nil {
		t.Fatal(err)
	}
	return n == 1
}
