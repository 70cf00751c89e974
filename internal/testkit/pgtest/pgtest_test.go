package pgtest_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentteams/team-server/internal/testkit/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func ask(t *testing.T, conn *pgx.Conn, query string) string {
	t.Helper()
	var answer string
	if err := conn.QueryRow(t.Context(), query).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return answer
}

func TestURL_SchemasAreApart(t *testing.T) {
	a, b := connect(t, pgtest.URL(t)), connect(t, pgtest.URL(t))
	defer a.Close(t.Context())
	defer b.Close(t.Context())
	execute(t, a, "CREATE TABLE word (w text)", "INSERT INTO word VALUES ('a')")
	execute(t, b, "CREATE TABLE word (w text)", "INSERT INTO word VALUES ('b')")
	if got := ask(t, a, "SELECT w FROM word") + ask(t, b, "SELECT w FROM word"); got != "ab" {
		t.Fatalf("words are %q", got)
	}
	if got := ask(t, a, "SHOW fsync"); got != "on" {
		t.Fatalf("fsync is %s", got)
	}
}

func TestServer_KillAndStart(t *testing.T) {
	s := pgtest.New(t)
	url := s.Schema(t)
	conn := connect(t, url)
	execute(t, conn, "CREATE TABLE word (w text)")
	for _, end := range []func(){s.Kill, s.Kill, s.Stop} {
		execute(t, conn, "INSERT INTO word VALUES ('kept')")
		end()
		for begun := time.Now(); conn.Ping(t.Context()) == nil; { // a process of its own, which has to notice
			if time.Since(begun) > 10*time.Second {
				t.Fatal("a server that has ended answers")
			}
		}
		_ = conn.Close(t.Context())
		start := time.Now()
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		t.Logf("started in %v", time.Since(start))
		conn = connect(t, url)
	}
	defer conn.Close(t.Context())
	if got := ask(t, conn, "SELECT count(*)::text FROM word"); got != "3" {
		t.Fatalf("%s of 3 rows are there", got)
	}
}
