package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/agentteams/team-server/internal/store"
)

// View is a store that is only read. Servers may use the store meanwhile. Its schema is not updated, and no file
// is changed. A View is safe for concurrent use.
type View struct {
	// File is the file of a SQLite store; "" for PostgreSQL.
	File string
	// InUse reports whether another process has opened a SQLite store.
	InUse bool

	db *sql.DB
}

// ErrNoStore is wrapped by the error of OpenView if the file does not exist, or if no server has used the
// database yet.
var ErrNoStore = errors.New("there is no store yet")

// OpenView opens the store at a URL to read it. Its errors have no passwords.
func OpenView(ctx context.Context, raw string) (v *View, err error) {
	if err := CheckURL(raw); err != nil {
		return nil, err
	}
	if file, ok := strings.CutPrefix(raw, store.SQLite); ok {
		v, err = viewSQLite(ctx, file)
	} else {
		v, err = viewPostgres(ctx, raw)
	}
	if err != nil {
		return nil, viewError{strings.Join(strings.Fields(store.Conceal(err.Error(), raw)), " "), err}
	}
	return v, nil
}

// viewError is an error on one line and without passwords.
type viewError struct {
	text  string
	cause error
}

func (e viewError) Error() string { return e.text }
func (e viewError) Unwrap() error { return e.cause }

// findSQLite returns the name of the file of a SQLite store without links, and whether a process has opened it.
func findSQLite(ctx context.Context, name string) (file string, used bool, err error) {
	file, err = filepath.EvalSymlinks(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, fmt.Errorf("%w: the file %s does not exist; check the path", ErrNoStore, name)
	}
	if err != nil {
		return "", false, err
	}
	if used, err = locked(ctx, file); err != nil {
		return "", false, explainRead(file, err)
	}
	return file, used, nil
}

// viewSQLite opens a SQLite file. A file that no process uses and that has no log is opened as one that does
// not change, so that SQLite makes no files beside it.
func viewSQLite(ctx context.Context, name string) (*View, error) {
	file, used, err := findSQLite(ctx, name)
	if err != nil {
		return nil, err
	}
	options := "?mode=ro&_pragma=busy_timeout(5000)&_pragma=query_only(1)"
	if !used && !exists(file+"-wal") {
		options += "&immutable=1"
	}
	v, err := viewFile(ctx, file, file, options)
	if err == nil {
		v.InUse = used
	}
	return v, err
}

// viewFile opens a SQLite file, which is file or a copy of it.
func viewFile(ctx context.Context, opened, file, options string) (v *View, err error) {
	v = &View{File: file}
	if v.db, err = sql.Open("sqlite", "file:"+(&url.URL{Path: opened}).EscapedPath()+options); err != nil {
		return nil, err
	}
	v.db.SetMaxOpenConns(2)
	tables, err := foreign(ctx, v.db, file)
	if err == nil && tables == 0 {
		err = fmt.Errorf("%w: %s is empty, because no server has used it", ErrNoStore, file)
	}
	if err != nil {
		return nil, errors.Join(explainRead(file, err), v.db.Close())
	}
	return v, nil
}

// explainRead says what to do about an error of reading a SQLite store, which need not be writable.
func explainRead(file string, err error) error {
	switch code(err) & 0xff {
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
	default:
		return explainSQLite(file, err)
	}
	if exists(file + "-wal") {
		return fmt.Errorf("%s and its log %s-wal cannot be read here; run this as the user of the server, or copy both files to a folder that can be written: %w", file, file, err)
	}
	return fmt.Errorf("%s, or %s.lock, cannot be read by this user; run this as the user of the server: %w", file, file, err)
}

// explainRights says what to do if the role may not read a database.
func explainRights(err error) error {
	var pe *pgconn.PgError
	if errors.As(err, &pe) && pe.Code == "42501" {
		return fmt.Errorf("the role of the URL may not read the store: %s; use the role of the servers, or GRANT USAGE ON SCHEMA and SELECT ON ALL TABLES IN SCHEMA to it", pe.Message)
	}
	return err
}

// locked reports whether another process, or this one, has opened a SQLite store.
func locked(ctx context.Context, file string) (bool, error) {
	if !exists(file + ".lock") {
		return false, nil
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file + ".lock"}).EscapedPath()+"?mode=ro")
	if err != nil {
		return false, err
	}
	defer db.Close() //nolint:errcheck // only read
	var n int
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master`).Scan(&n)
	if code(err)&0xff == sqlite3.SQLITE_BUSY {
		return true, nil
	}
	return false, err
}

// viewPostgres connects to a database.
func viewPostgres(ctx context.Context, raw string) (*View, error) {
	pc, err := parsePostgres(raw)
	if err != nil {
		return nil, err
	}
	pc.ConnConfig.RuntimeParams["application_name"] = "team-server (reads)"
	pc.ConnConfig.ConnectTimeout = connectWait
	v := &View{db: stdlib.OpenDB(*pc.ConnConfig)}
	v.db.SetMaxOpenConns(2)
	var ours, usable bool
	err = v.db.QueryRowContext(ctx, `SELECT to_regclass('goose_db_version') IS NOT NULL, current_schema() IS NOT NULL`).Scan(&ours, &usable)
	switch {
	case err != nil:
		err = explainPostgres(err)
	case !usable:
		err = errNoUsableSchema
	case !ours:
		err = errEmptyDatabase
	}
	if err != nil {
		return nil, errors.Join(err, v.db.Close())
	}
	return v, nil
}

// errNoUsableSchema is the error for a database whose tables the role does not see.
var errNoUsableSchema = errors.New("no schema of the search path exists and may be used by the role of the URL; use the role of the servers, or GRANT USAGE ON SCHEMA and SELECT ON ALL TABLES IN SCHEMA to it")

// errEmptyDatabase is the error for a database without the tables of a store.
var errEmptyDatabase = fmt.Errorf("%w: the database is empty, because no server has used it", ErrNoStore)

// Close closes the connections.
func (v *View) Close() error { return v.db.Close() }

// Schema returns the version of the store's schema, and the version that this program knows.
func (v *View) Schema(ctx context.Context) (have, known int64, err error) { return schemaOf(ctx, v.db) }

// rower reads one row; a database or a transaction.
type rower interface {
	QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row
}

// schemaOf returns the version of the schema that q reads, and the version that this program knows.
func schemaOf(ctx context.Context, q rower) (have, known int64, err error) {
	if known, err = knownSchema(); err != nil {
		return 0, 0, err
	}
	err = q.QueryRowContext(ctx, `SELECT max(version_id) FROM goose_db_version`).Scan(&have)
	return have, known, err
}

// checkSame returns an error unless what q reads has the schema of this program.
func checkSame(ctx context.Context, q rower) error {
	have, known, err := schemaOf(ctx, q)
	switch {
	case err != nil:
		return err
	case have > known:
		return newerSchema(have, known)
	case have < known:
		return fmt.Errorf("the schema of the store is %d, and this version of team-server needs %d; use the version that the servers have, or start this one with the store first", have, known)
	}
	return nil
}

// Now returns the time of the store.
func (v *View) Now(ctx context.Context) (t time.Time, err error) {
	if v.File != "" {
		return time.Now(), nil
	}
	err = v.db.QueryRowContext(ctx, `SELECT clock_timestamp()`).Scan(&t)
	return t, err
}

// store returns a Store whose reads use q, and which cannot be written.
func (v *View) store(q querier) *Store { return &Store{db: viewDB{q: q, one: v.File != ""}} }

// viewDB is a database that is only read.
type viewDB struct {
	q   querier
	one bool
}

var errView = errors.New("the store was opened to be read only")

func (d viewDB) single() bool                           { return d.one }
func (d viewDB) reader() querier                        { return d.q }
func (d viewDB) add(source) error                       { return errView }
func (d viewDB) now(context.Context) (time.Time, error) { return time.Now(), nil }
func (d viewDB) lock() string                           { return "" }
func (d viewDB) skip() string                           { return "" }
func (d viewDB) binary() string                         { return "" }
func (d viewDB) tell(_, _ string)                       {}
func (d viewDB) state() *health                         { return newHealth() }
func (d viewDB) close() error                           { return nil }
func (d viewDB) statement(context.Context, func(context.Context, querier) error) error {
	return errView
}
func (d viewDB) do(context.Context, func(context.Context, querier) error) error { return errView }
