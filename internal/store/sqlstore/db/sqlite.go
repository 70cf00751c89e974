package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pressly/goose/v3"
	"go.uber.org/zap"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/agentteams/team-server/internal/metrics"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
)

// sqliteDB is a database in a file of which this process has exclusive use. One connection writes;
// readers have connections of their own and see what is committed. In memory there is one connection for both.
type sqliteDB struct {
	opened    []namedFile // the file and its log
	locks     *sql.DB     // the lock file beside the database
	locked    *sql.Conn   // holds the lock of the process
	writePool *sql.DB     // a single connection
	writes    *statements // on the connection of writePool; used only by the writer
	reads     *statements // nil for a database in memory
	inMemory  bool
	writer    writer
	turn      sync.Mutex // held while a group is written; a reader of a database in memory holds it too
	health    *health
	logged    int           // approximate number of pages in the log, or written to memory; used only by the writer
	grown     chan struct{} // receives when a database in memory has grown by about grownPages
	stop      context.CancelFunc
	checks    sync.WaitGroup // running checks of the file's structure
}

// checkName returns why a store cannot be a file with this name.
func checkName(file string) error {
	switch info, err := os.Stat(file); {
	case file == "":
		return errors.New("the store's URL names no file; use sqlite:FILE")
	case file == ":memory:":
		return errors.New("a SQLite store is a file; memory: is one that is gone with the process")
	case strings.HasPrefix(file, "//"):
		return errors.New("a SQLite store is sqlite:FILE, without // before the file's name")
	case err == nil && info.IsDir():
		return fmt.Errorf("%s is a folder; name a file in it", file)
	}
	return nil
}

// pragmas are the settings of each connection: a commit is on disk before it is acknowledged
// (synchronous FULL), deleted data is overwritten, and only the writer makes checkpoints.
const pragmas = "_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)" +
	"&_pragma=wal_autocheckpoint(0)&_pragma=foreign_keys(1)&_pragma=secure_delete(1)&_pragma=temp_store(MEMORY)&_pragma=cache_size(-16000)"

// openSQLite opens a file.
func openSQLite(ctx context.Context, file string, measure *metrics.Store, log *zap.Logger) (_ *sqliteDB, err error) {
	if err := checkName(file); err != nil {
		return nil, err
	}
	if name, err := filepath.EvalSymlinks(file); err == nil {
		file = name // the lock file is beside the file itself, whatever the name it is opened by
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the store: %w", err)
	}
	d := &sqliteDB{health: newHealth()}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.closeAll())
		}
	}()
	private(file, log)
	if err := d.take(ctx, file); err != nil {
		return nil, err
	}
	if err := checkLog(file); err != nil {
		return nil, fmt.Errorf("%s cannot be used: %w", file, err)
	}
	if err = d.connect(ctx, file, ""); noRoom(err) {
		if err := d.disconnect(); err != nil {
			return nil, err
		}
		d.reads, d.writes, d.writePool = nil, nil, nil
		// With this VFS the connections need no shared memory, for which there is no room.
		// Other processes cannot open the file until the next start.
		err = d.connect(ctx, file, "&vfs=unix-excl")
	}
	if err != nil {
		return nil, explainSQLite(file, err)
	}
	var sctx context.Context
	sctx, d.stop = context.WithCancel(context.WithoutCancel(ctx))
	d.writer = writer{ctx: context.WithoutCancel(ctx), write: d.write, metrics: measure}
	d.checkStructure(sctx, file, log)
	d.opened = namedFiles(file, file+"-wal")
	return d, nil
}

// namedFile is a file with the name by which it was opened.
type namedFile struct {
	name string
	info os.FileInfo
}

// namedFiles returns those of some files that exist.
func namedFiles(names ...string) (list []namedFile) {
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			list = append(list, namedFile{name, info})
		}
	}
	return list
}

// check makes this process refuse all writes if a file that is open has been deleted, moved or replaced: SQLite
// would write to it as before, and all of it would be lost at the end of the process.
func (d *sqliteDB) check(context.Context) {
	for _, f := range d.opened {
		info, err := os.Stat(f.name)
		if err == nil && os.SameFile(info, f.info) || err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		what := "replaced by another file"
		if err != nil {
			what = "deleted or moved"
		}
		d.health.freeze(fmt.Errorf("%w: %s was %s while the server was using it; the latest writes may be lost; "+
			"stop the server, move the remaining files of the store away, and restore a backup", runs.ErrStorage, f.name, what))
	}
}

// private creates the files of a store with mode 0600; SQLite gives the files that it
// adds the same mode. It ignores errors, because SQLite reports them itself. It opens no
// file that exists: closing a file releases all locks that the process has on it, also
// those of a store that is open (POSIX, fcntl).
func private(file string, log *zap.Logger) {
	for _, name := range []string{file, file + ".lock"} {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the store
		if err == nil {
			_ = f.Close() // nothing was written
		}
	}
	const others = 0o007
	if info, err := os.Stat(file); err == nil && info.Mode().Perm()&others != 0 && runtime.GOOS != "windows" {
		log.Warn("every user of this machine can open the store; "+makePrivate(file), zap.String("file", file))
	}
}

// makePrivate says how to let only the owner open a store.
func makePrivate(file string) string {
	names := []string{"run chmod 600", file}
	for _, suffix := range []string{"-wal", "-shm", ".lock"} {
		if exists(file + suffix) {
			names = append(names, file+suffix)
		}
	}
	return strings.Join(names, " ")
}

// connect opens the connections, updates the schema, and syncs the folder so that the names of the files are
// durable.
func (d *sqliteDB) connect(ctx context.Context, file, options string) error {
	// With mode=rw, a later connection does not make a new file if this one was deleted meanwhile.
	name := "file:" + (&url.URL{Path: file}).EscapedPath() + "?mode=rw&" + pragmas + options
	w, err := sql.Open("sqlite", name)
	if err != nil {
		return err
	}
	w.SetMaxOpenConns(1)
	d.writePool = w
	tables, err := foreign(ctx, w, file)
	if err != nil {
		return err
	}
	if tables == 0 {
		if err := beginSchema(ctx, w); err != nil {
			return err
		}
	}
	if err := migrate(ctx, w, goose.DialectSQLite3); err != nil {
		return err
	}
	conn, err := w.Conn(ctx)
	if err != nil {
		return err
	}
	d.writes = &statements{on: conn}
	r, err := sql.Open("sqlite", name+"&_pragma=query_only(1)")
	if err != nil {
		return err
	}
	r.SetMaxOpenConns(8 + 1) // one is for the check
	r.SetMaxIdleConns(8)
	d.reads = &statements{on: r}
	if err := syncFolder(file); errors.Is(err, syscall.EIO) {
		return fmt.Errorf("sync the folder of %s: %w", file, err)
	}
	return nil
}

// disconnect closes what connect has opened. Calls that are late get errors of closed connections.
func (d *sqliteDB) disconnect() error {
	var errs []error
	for _, s := range []*statements{d.reads, d.writes} {
		if s != nil {
			errs = append(errs, s.close())
		}
	}
	if d.writePool != nil {
		errs = append(errs, d.writePool.Close())
	}
	return errors.Join(errs...)
}

// checkStructure reads the structure of the whole file. It does not wait for long: the file is served while the check
// continues.
func (d *sqliteDB) checkStructure(ctx context.Context, file string, log *zap.Logger) {
	done := make(chan struct{})
	pool, _ := d.reads.on.(*sql.DB)
	d.checks.Go(func() {
		defer close(done)
		switch err := checkPages(ctx, pool, file); {
		case errors.Is(err, runs.ErrStorage):
			d.health.freeze(err)
		case err != nil && ctx.Err() == nil:
			log.Warn("whether the store is damaged is not known", zap.String("file", file), zap.Error(err))
		}
	})
	wait := time.NewTimer(checkWait)
	defer wait.Stop()
	select {
	case <-done:
	case <-wait.C:
	}
}

// noRoom reports whether an error means that the disk is full, or that there is no room
// for the shared memory of the connections, which is a file.
func noRoom(err error) bool {
	switch c := code(err); c {
	case sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP, sqlite3.SQLITE_IOERR_SHMOPEN:
		return true
	default:
		return c&0xff == sqlite3.SQLITE_FULL
	}
}

// take locks the file for this process, by a transaction on a database beside it that
// never ends: the lock is released when the process exits for any reason. Nothing is
// written, so that a full disk does not prevent reading.
func (d *sqliteDB) take(ctx context.Context, file string) error {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file + ".lock"}).EscapedPath()+"?_pragma=busy_timeout(200)&_pragma=journal_mode(MEMORY)") // locked reads it for a moment
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	d.locks = db
	if d.locked, err = db.Conn(ctx); err == nil {
		_, err = d.locked.ExecContext(ctx, "BEGIN EXCLUSIVE")
	}
	if code(err)&0xff == sqlite3.SQLITE_BUSY {
		return fmt.Errorf("%s is in use by another process: a SQLite store serves one at a time; stop the other, or use a postgres:// store, which several can share", file)
	}
	if err != nil {
		return explainSQLite(file, err)
	}
	return nil
}

// foreign rejects a database that another program created. It returns the number of
// tables.
func foreign(ctx context.Context, db *sql.DB, file string) (tables int, err error) {
	var ours int
	err = db.QueryRowContext(ctx, `SELECT count(*), coalesce(sum(name = 'goose_db_version'), 0) FROM sqlite_master WHERE type = 'table'`).Scan(&tables, &ours)
	if err == nil && tables > 0 && ours == 0 {
		err = fmt.Errorf("%s is the database of another program; name another file", file)
	}
	return tables, err
}

// explainSQLite says what to do about an error at the start.
func explainSQLite(file string, err error) error {
	switch code(err) & 0xff {
	case 0:
		return err
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("the disk of %s is full, and what the store has to hold from the start is not in it; free space, and start again: %w", file, err)
	case sqlite3.SQLITE_IOERR:
		return fmt.Errorf("reading or writing %s failed; check the disk, restore a backup if the file is damaged, and start again: %w", file, err)
	case sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%s is not a SQLite database, or its first page is damaged; name another file, or restore a backup: %w", file, err)
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return fmt.Errorf("%s cannot be written; check the folder and its rights: %w", file, err)
	case sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("%s is damaged; restore a backup: %w", file, err)
	}
	return fmt.Errorf("open %s: %w", file, err)
}

// code returns the SQLite result code of an error, 0 without one.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

func (d *sqliteDB) dialect() Dialect       { return Dialect{Single: true, Binary: "BLOB"} }
func (d *sqliteDB) Tell(_, _ string)       {}
func (d *sqliteDB) listen(func(...string)) {}
func (d *sqliteDB) state() *health         { return d.health }
func (d *sqliteDB) Add(s Source) error     { return d.writer.add(s) }

// time returns the machine's time without its monotonic part, which would hide a jump of the clock.
func (d *sqliteDB) time(context.Context) (time.Time, error) { return time.Now().Round(0), nil }

// Do queues f like every other change, because there is only one writer.
func (d *sqliteDB) Do(ctx context.Context, f func(ctx context.Context, q Querier) error) error {
	return await(ctx, d, &Op{Plan: f})
}

// Statement implements Engine.
func (d *sqliteDB) Statement(ctx context.Context, f func(ctx context.Context, q Querier) error) error {
	return d.Do(ctx, f)
}

// write writes a group in one transaction.
func (d *sqliteDB) write(ctx context.Context, ops []*Op) (left []*Op, err error) {
	if err := d.health.closed(); err != nil {
		return ops, err
	}
	answers, err := d.group(ctx, ops)
	if err != nil {
		return ops, d.failed(err)
	}
	d.health.wrote(nil)
	for i, o := range ops {
		_ = o.Done(ctx, d.Reader(), answers[i]) // the caller gets the error from done
	}
	d.checkpoint(ctx, ops)
	return nil, nil
}

const (
	// checkpointPages is the approximate number of pages in the log at which it is written back.
	checkpointPages = 1000
	// grownPages is the approximate number of pages written to a database in memory after which what is old is deleted.
	grownPages = 16_000
)

// checkpoint writes the log back into the database when it is large enough. SQLite could do so by
// itself, but would not report an error that means that the disk has lost synced data.
func (d *sqliteDB) checkpoint(ctx context.Context, ops []*Op) {
	const page, indexes = 4096, 4 // a change touches a page of each index it is in
	for _, o := range ops {
		d.logged += indexes + o.Size/page
	}
	switch {
	case d.inMemory && d.logged >= grownPages:
		d.logged = 0
		store.Poke(d.grown)
		return
	case d.inMemory || d.logged < checkpointPages:
		return
	}
	d.logged = 0
	var busy, log, written int
	if err := d.writes.Scan(ctx, []any{&busy, &log, &written}, "PRAGMA wal_checkpoint(PASSIVE)"); err != nil {
		_ = d.failed(err) // the error is latched if it is permanent
	}
}

// group applies ops and commits them. answers are the refusals of single ops, which are not errors
// of the group. After an error, nothing is written.
func (d *sqliteDB) group(ctx context.Context, ops []*Op) (answers []error, err error) {
	d.turn.Lock()
	defer d.turn.Unlock()
	if _, err := d.writes.Exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_, _ = d.writes.Exec(ctx, "ROLLBACK") // fails if no transaction is open
		}
	}()
	answers = make([]error, len(ops))
	for i, o := range ops {
		answers[i] = o.Apply(ctx, d.writes)
		if err := answers[i]; err != nil && !refused(err) {
			return nil, err
		}
	}
	_, err = d.writes.Exec(ctx, "COMMIT")
	return answers, err
}

// failed classifies an error of a write. After a full disk, writes may succeed again; an error of
// the disk itself is permanent, because the state of the data on it is unknown.
func (d *sqliteDB) failed(err error) error {
	if d.inMemory {
		return fmt.Errorf("%w: %w", runs.ErrStorage, err) // the next write may find memory again
	}
	if noRoom(err) {
		err = fmt.Errorf("%w: the disk is full; free space, and writes are taken again: %w", runs.ErrStorage, err)
		d.health.wrote(err)
		return err
	}
	switch code(err) & 0xff {
	case sqlite3.SQLITE_IOERR:
		return d.health.latch(fmt.Errorf("the disk does not take what is written: %w", err))
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return damaged(err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN:
		// For example, another program has opened the file.
		err = fmt.Errorf("%w: %w", runs.ErrStorage, err)
		d.health.wrote(err)
	}
	return err
}

// close implements Engine. It first writes what is queued.
func (d *sqliteDB) close() error {
	d.writer.close()
	d.stop()
	d.checks.Wait()
	return d.closeAll()
}

// closeAll closes everything that is open.
func (d *sqliteDB) closeAll() error {
	errs := []error{d.disconnect()}
	if d.locked != nil {
		errs = append(errs, d.locked.Close())
	}
	if d.locks != nil {
		errs = append(errs, d.locks.Close())
	}
	return errors.Join(errs...)
}

// preparer prepares statements: a pool, or a single connection.
type preparer interface {
	PrepareContext(ctx context.Context, text string) (*sql.Stmt, error)
	Close() error
}

// statements prepares each text only once. It is safe for concurrent use.
type statements struct {
	on preparer

	mu       sync.RWMutex
	prepared map[string]*sql.Stmt // guarded by mu
}

// stmt returns the prepared statement of a text.
func (s *statements) stmt(ctx context.Context, text string) (*sql.Stmt, error) {
	s.mu.RLock()
	p := s.prepared[text]
	s.mu.RUnlock()
	if p != nil {
		return p, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.prepared[text]; p != nil {
		return p, nil
	}
	p, err := s.on.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	if s.prepared == nil {
		s.prepared = map[string]*sql.Stmt{}
	}
	s.prepared[text] = p
	return p, nil
}

func (s *statements) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	p, err := s.stmt(ctx, text)
	if err != nil {
		return 0, err
	}
	r, err := p.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (s *statements) Query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	p, err := s.stmt(ctx, text)
	if err != nil {
		return nil, err
	}
	return p.QueryContext(ctx, args...)
}

func (s *statements) Scan(ctx context.Context, dest []any, text string, args ...any) error {
	p, err := s.stmt(ctx, text)
	if err != nil {
		return damaged(err)
	}
	return damaged(p.QueryRowContext(ctx, args...).Scan(dest...))
}

func (s *statements) Again(_ context.Context, f func() error) error { return f() }

func (s *statements) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := make([]error, 0, len(s.prepared)+1)
	for _, p := range s.prepared {
		errs = append(errs, p.Close())
	}
	return errors.Join(append(errs, s.on.Close())...)
}
