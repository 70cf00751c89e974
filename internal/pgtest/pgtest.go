// Package pgtest gives tests a PostgreSQL: a schema of their own on a server
// that the test process starts once, or a server of their own to kill.
//
// The server is found by its binaries (PATH, /usr/lib/postgresql, pg_config).
// TEAM_TEST_PG names a running one to use for schemas instead. Without either,
// tests are skipped with SKIP-MISSING-TOOL, which the CI takes for a failure.
package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// Variable names the running server to use in place of one of our own.
const Variable = "TEAM_TEST_PG"

// timeout bounds each thing that is asked of a database here.
const timeout = 30 * time.Second

// shared is the server of the test process: a process has one, and there is
// nobody to hand it to tests that only know their testing.TB.
var shared struct {
	sync.Mutex
	server *Server // guarded by the mutex, like all here
	err    error
}

// Main is for TestMain: it runs the tests, stops the server of the process if
// one was started, looks for leaked goroutines, and ends the process.
func Main(m goleak.TestingM, options ...goleak.Option) {
	goleak.VerifyTestMain(stopping{m}, options...)
}

// stopping stops the shared server before goroutines are counted.
type stopping struct{ m goleak.TestingM }

// Run runs the tests.
func (s stopping) Run() int {
	code := s.m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		return code
	}
	if err := shared.server.close(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		return max(code, 1)
	}
	return code
}

// URL returns the URL of an empty schema of t's own, which is dropped when t
// ends. Its tables are found by search_path; what belongs to a whole database
// (advisory locks, the channels of LISTEN) is shared with other tests. Skips t
// when there is no PostgreSQL. Safe for concurrent use.
func URL(t testing.TB) string {
	t.Helper()
	server := os.Getenv(Variable)
	if server == "" {
		server = sharedURL(t)
	}
	return schema(t, server, true)
}

// sharedURL starts the server of the process when it is asked for first.
func sharedURL(t testing.TB) string {
	t.Helper()
	bin := binaries(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = create(bin)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server.URL()
}

// schema makes a schema and names it in the URL.
func schema(t testing.TB, server string, drop bool) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatalf("%s: %v", Variable, err)
	}
	name := "test_" + strings.ToLower(rand.Text())
	execute(t, server, "CREATE SCHEMA "+name)
	if drop {
		t.Cleanup(func() { execute(t, server, "DROP SCHEMA "+name+" CASCADE") })
	}
	query := u.Query()
	query.Set("search_path", name)
	u.RawQuery = query.Encode()
	return u.String()
}

// execute runs one statement.
func execute(t testing.TB, server, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	if _, err := conn.Exec(ctx, statement); err != nil {
		t.Errorf("pgtest: %s: %v", statement, err)
	}
	if err := conn.Close(ctx); err != nil {
		t.Errorf("pgtest: %v", err)
	}
}
