// Package pgtest provides PostgreSQL for tests: a schema on a server that is shared by
// the test process, or a separate server that may be killed. The shared server keeps its data
// in memory where the system has a file system for that: it is never killed, and on a disk
// most of the time of a test goes into the files of its schema. Benchmarks always get a disk.
// fsync is on for all of them.
//
// The binaries of the server are searched for in PATH, /usr/lib/postgresql and the
// directory that pg_config prints. TEAM_TEST_PG names a running server to use for
// schemas instead. Without either, tests are skipped with SKIP-MISSING-TOOL, which
// continuous integration treats as a failure.
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

// Variable is the environment variable with the URL of a running server to use for schemas.
const Variable = "TEAM_TEST_PG"

// timeout is the time limit of each database operation.
const timeout = 30 * time.Second

// shared is the server of the test process. It is a global, because tests only have
// their testing.TB.
var shared struct {
	sync.Mutex
	server *Server // guarded by Mutex, like err
	err    error
}

// Main is for TestMain: it runs the tests, stops the shared server if it was started, checks for
// leaked goroutines, and exits.
func Main(m goleak.TestingM, options ...goleak.Option) {
	goleak.VerifyTestMain(stopping{m}, options...)
}

// stopping stops the shared server before leaked goroutines are checked.
type stopping struct{ m goleak.TestingM }

// Run runs the tests and returns the exit code.
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

// URL returns the URL of an empty schema, which is dropped when t ends. The search_path selects the
// schema; objects that belong to the whole database, such as advisory locks and the channels of
// LISTEN, are shared with other tests. URL skips t if there is no PostgreSQL. It is safe for
// concurrent use.
func URL(t testing.TB) string {
	t.Helper()
	server := os.Getenv(Variable)
	if server == "" {
		server = sharedURL(t)
	}
	return schema(t, server, true)
}

// sharedURL returns the URL of the shared server, which is started on the first call.
func sharedURL(t testing.TB) string {
	t.Helper()
	bin := binaries(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		parent := memory()
		if _, isBenchmark := t.(*testing.B); isBenchmark { // a sync of a file in memory costs nothing
			parent = ""
		}
		shared.server, shared.err = create(bin, parent, "")
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server.URL()
}

// schema creates a schema and returns the URL that selects it.
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

// execute executes a statement.
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
