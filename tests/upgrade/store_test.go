package upgrade

import (
	"bytes"
	"compress/gzip"
	"context"
	"database/sql"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/tests/rig"
)

// kind is a kind of store, and the file in testdata that holds one.
type kind struct {
	name, file string
	empty      func(testing.TB) rig.Place
	// dump writes a store that a server has open into the file, as a crash of that
	// server would leave it.
	dump func(t testing.TB, url, file string)
	// load returns a copy of the file.
	load func(t testing.TB, file string) rig.Place
	// change runs a statement on a store that nobody has open.
	change func(t testing.TB, url, statement string)
}

func kinds() []kind {
	return []kind{
		{"sqlite", "testdata/sqlite.db.gz", rig.SQLite, dumpSQLite, loadSQLite, changeSQLite},
		{"postgres", "testdata/postgres.sql.gz", rig.PostgreSQL, dumpPostgreSQL, loadPostgreSQL, changePostgreSQL},
	}
}

// Statements on a store as it was left.
const (
	// park has a run be one that could not be started too often in a row.
	park = `UPDATE run SET parked = 'a test parked it', holder = NULL, due = NULL WHERE id IN (SELECT id FROM request WHERE message = 'workflow-parked')`
	// still has a server begin nothing by itself, so that its tasks stay as they are.
	still = `UPDATE run SET holder = NULL, due = NULL, parked = NULL`
	// untold has it call no receiver.
	untold = `UPDATE push_config SET held = 0, due = NULL`
	// unswept has it keep the streamed text of runs that ended more than an hour ago, which it
	// would otherwise delete a minute after its start.
	unswept = `UPDATE run SET deltas = 0`
)

func dumpSQLite(t testing.TB, url, file string) {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "store.db")
	changeSQLite(t, url, `VACUUM INTO '`+copied+`'`)
	pack(t, file, must[[]byte](t)(os.ReadFile(copied)))
}

func loadSQLite(t testing.TB, file string) rig.Place {
	t.Helper()
	at := rig.SQLite(t)
	if err := os.WriteFile(strings.TrimPrefix(at.URL, "sqlite:"), unpack(t, file), 0o600); err != nil {
		t.Fatal(err)
	}
	return at
}

func changeSQLite(t testing.TB, url, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(url, "sqlite:")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// schema stands for the name of a schema in a dump.
const schema = "schema_of_the_store"

// dumpPostgreSQL has pg_dump write statements, of which those are kept that every
// version of PostgreSQL takes from every client.
func dumpPostgreSQL(t testing.TB, at, file string) {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	name := u.Query().Get("search_path")
	u.RawQuery = "sslmode=disable"
	cmd := exec.CommandContext(t.Context(), pgtest.Program(t, "pg_dump"), "--inserts", "--no-owner", "--no-privileges", "--schema="+name, u.String())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("pg_dump: %v", err)
	}
	var kept bytes.Buffer
	for line := range bytes.Lines(out) {
		switch text := string(line); {
		case strings.TrimSpace(text) == "", strings.HasPrefix(text, "--"), strings.HasPrefix(text, `\`), strings.HasPrefix(text, "SET "),
			strings.HasPrefix(text, "SELECT pg_catalog.set_config"), strings.HasPrefix(text, "CREATE SCHEMA "):
		default:
			kept.WriteString(strings.ReplaceAll(text, name, schema))
		}
	}
	pack(t, file, kept.Bytes())
}

func loadPostgreSQL(t testing.TB, file string) rig.Place {
	t.Helper()
	at := rig.PostgreSQL(t)
	u, err := url.Parse(at.URL)
	if err != nil {
		t.Fatal(err)
	}
	changePostgreSQL(t, at.URL, strings.ReplaceAll(string(unpack(t, file)), schema, u.Query().Get("search_path")))
	return at
}

func changePostgreSQL(t testing.TB, url, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.PgConn().Exec(t.Context(), statement).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

// pack writes a file, compressed.
func pack(t testing.TB, file string, b []byte) {
	t.Helper()
	var packed bytes.Buffer
	w := must[*gzip.Writer](t)(gzip.NewWriterLevel(&packed, gzip.BestCompression))
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// unpack reads a file that is compressed.
func unpack(t testing.TB, file string) []byte {
	t.Helper()
	packed := must[[]byte](t)(os.ReadFile(file))
	return must[[]byte](t)(io.ReadAll(must[*gzip.Reader](t)(gzip.NewReader(bytes.NewReader(packed)))))
}
