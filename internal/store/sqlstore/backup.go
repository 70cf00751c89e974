package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/store"
)

// FileError is an error about the file of a backup, and not about the store. Its text names the file.
type FileError struct{ err error }

func (e FileError) Error() string { return e.err.Error() }
func (e FileError) Unwrap() error { return e.err }

// fileErrorf returns a FileError.
func fileErrorf(format string, args ...any) error { return FileError{fmt.Errorf(format, args...)} }

// Backup writes a copy of a store to a new file, as the store is at one moment. Servers may use the store
// meanwhile. The file is complete and synced before it gets its name; it must not exist, or with force be a
// backup. If records of the store are damaged, the error names what they belong to; the backup is made all the same
// unless it would replace an older one. log receives warnings.
func Backup(ctx context.Context, raw, file string, force bool, log *zap.Logger) (c Content, err error) {
	check := func() error { return checkTarget(ctx, raw, file, force) }
	if err := check(); err != nil {
		return Content{}, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), ".team-server-backup-")
	if err != nil {
		return Content{}, fileErrorf("make a folder beside %s for the backup: %w", file, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	made := filepath.Join(dir, "store.db")
	at := time.Now()
	if source, ok := strings.CutPrefix(raw, store.SQLite); ok {
		err = backupSQLite(ctx, source, made)
	} else {
		err = explainRights(backupPostgres(ctx, raw, made, log))
	}
	if err == nil {
		err = seal(ctx, made, at)
	}
	if err == nil {
		c, err = verifyBackup(ctx, made)
	}
	var found *damage
	if err == nil {
		found, err = findDamage(ctx, made)
	}
	if err == nil && len(found.of) > 0 && exists(file) {
		return Content{}, fmt.Errorf("the store is damaged: records of these do not have their checksum: %s. %s was not replaced, because it may have them as they were; check the disk, and name another file to back up the rest", found, file)
	}
	if err == nil {
		err = publish(made, file, force, check)
	}
	if err != nil {
		return Content{}, explainFull(file, err)
	}
	if len(found.of) > 0 {
		return c, fmt.Errorf("the store is damaged: records of these do not have their checksum: %s. %s has them as they are, and the rest of the store whole; check the disk, and keep earlier backups, which may have them as they were", found, file)
	}
	return c, nil
}

// checkTarget returns an error if a backup of a store must not be written to a file. With force, the file may be a
// backup, but never the store itself, and no other file.
func checkTarget(ctx context.Context, raw, file string, force bool) error {
	info, err := os.Lstat(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return FileError{err}
	}
	there := err == nil
	if there && !info.Mode().IsRegular() {
		return fileErrorf("%s is not a regular file; name another file", file)
	}
	if source, ok := strings.CutPrefix(raw, store.SQLite); ok && there {
		if of, err := os.Stat(source); err == nil && os.SameFile(of, info) {
			return fileErrorf("%s is the store itself; name another file for the backup", file)
		}
	}
	if there && !force {
		return fileErrorf("%s exists already; name another file, or replace an older backup with --force", file)
	}
	if err := checkUnused(ctx, file); err != nil {
		return FileError{err}
	}
	if there {
		return checkReplaced(ctx, file)
	}
	return nil
}

// checkReplaced returns an error unless a file is a backup.
func checkReplaced(ctx context.Context, file string) error {
	is, err := isBackup(ctx, file)
	if err != nil {
		return FileError{err}
	}
	if !is {
		return fileErrorf("%s is not a backup, and --force replaces only backups; name another file", file)
	}
	return nil
}

// isBackup reports whether a file is a backup, as seal has left it. One that was served by an earlier version is a
// store. No process may have opened the file as a store.
func isBackup(ctx context.Context, file string) (bool, error) {
	const journal = 1 // of the format versions; a server sets them to that of a write-ahead log
	header, err := readAt(file, 0, headerSize)
	if err != nil || len(header) < headerSize || string(header[:len(headerMagic)]) != headerMagic || header[18] != journal {
		return false, err
	}
	db, err := backupDB(file, "&mode=ro&immutable=1")
	if err == nil {
		_, err = readManifest(ctx, db)
		err = errors.Join(err, db.Close())
	}
	return err == nil, context.Cause(ctx)
}

// What is found, and what to do, if a backup is to be used as a store.
const (
	servedBackup  = "%s is a backup, and a server would change it"
	restoreBackup = "restore it to a new store, and use that: team-server restore %s --store sqlite:NEW.db"
)

// besideSuffixes are the suffixes of the files that SQLite reads together with a database file.
var besideSuffixes = slices.Concat(logSuffixes, []string{"-shm"})

// checkUnused returns an error if a store must not be written to a file, which may exist: if a process has opened
// it, if it is beside a store and belongs to it, or if files beside it belong to an earlier store with its name,
// whose log would change the new one.
func checkUnused(ctx context.Context, file string) error {
	if name, err := filepath.EvalSymlinks(file); err == nil {
		file = name
	}
	used, err := locked(ctx, file)
	if err != nil {
		return explainRead(file, err)
	}
	if used {
		return fmt.Errorf("a server uses %s; name another file", file)
	}
	var beside []string
	for _, suffix := range besideSuffixes {
		if _, err := os.Lstat(file + suffix); err == nil {
			beside = append(beside, file+suffix)
		}
	}
	if len(beside) > 0 && exists(file) {
		beside = append([]string{file}, beside...)
	}
	if len(beside) > 0 {
		return fmt.Errorf("%s: these files belong to an earlier store, and would damage a new one; move them away together, or name another file", strings.Join(beside, ", "))
	}
	for _, suffix := range append([]string{".lock"}, besideSuffixes...) {
		if of, ok := strings.CutSuffix(file, suffix); ok && exists(of) {
			return fmt.Errorf("the name %s is that of a file of the store %s; name another file", file, of)
		}
	}
	return nil
}

// publish syncs a file that was made and gives it its name, unless check returns an error. Without force it
// replaces no file, also none that was made meanwhile.
func publish(made, file string, force bool, check func() error) error {
	if err := errors.Join(syncFile(made), check()); err != nil {
		return err
	}
	linked := errors.ErrUnsupported
	if !force {
		linked = os.Link(made, file) // fails if the file exists; the caller removes the other name
	}
	switch {
	case errors.Is(linked, fs.ErrExist):
		return fileErrorf("%s was made by another program meanwhile; name another file", file)
	case linked != nil: // or the file system has no links
		if err := os.Rename(made, file); err != nil {
			return FileError{err}
		}
	}
	return syncFolder(file)
}

// syncFile syncs a file.
func syncFile(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0) //nolint:gosec // a file of the caller
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// explainFull says what to do if an error means that the disk of a new file is full.
func explainFull(file string, err error) error {
	full := noRoom(err) || errors.Is(err, syscall.ENOSPC)
	if full && errors.Is(err, ErrPartial) {
		return fileErrorf("the disk of %s is full; free space, and %w", file, ErrPartial)
	}
	if full {
		return fileErrorf("the disk of %s is full; free space, or name a file on another disk", file)
	}
	return err
}

// backupSQLite copies a SQLite store to a new file.
func backupSQLite(ctx context.Context, source, made string) (err error) {
	file, used, err := findSQLite(ctx, source)
	if err != nil {
		return err
	}
	if !used {
		return backupUnused(ctx, file, made)
	}
	v, err := viewSQLite(ctx, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if err := checkSame(ctx, v.db); err != nil {
		return err
	}
	return vacuumInto(ctx, v.db, made)
}

// backupUnused copies a SQLite store that no process uses, by a copy of its files: opening the store itself would
// apply its log to it, even a damaged one. It makes no file beside the store.
func backupUnused(ctx context.Context, file, made string) (err error) {
	dir, err := os.MkdirTemp("", "team-server-")
	if err != nil {
		return fmt.Errorf("make a folder for a copy of %s: %w", file, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	copied, err := copyStore(ctx, file, dir)
	if err != nil {
		return err
	}
	if used, err := locked(ctx, file); used || err != nil {
		return errors.Join(err, errors.New("a server has opened the store while it was copied; try again"))
	}
	lost, err := checkFile(copied)
	if err != nil {
		return fmt.Errorf("%s cannot be used: %w", file, err)
	}
	v, err := viewFile(ctx, copied, file, "?_pragma=query_only(1)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if err = checkPages(ctx, v.db, file); lost != nil {
		lost.ofSource(file)
		err = lost.err(ctx, pgQuerier{v.db})
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("the store is damaged, so a backup would be, too: %w", err)
	}
	if err == nil {
		err = checkSame(ctx, v.db)
	}
	if err == nil {
		err = vacuumInto(ctx, v.db, made)
	}
	return err
}

// vacuumInto copies a database, as it is at the start of the copy, to a file that only its owner can read.
func vacuumInto(ctx context.Context, db *sql.DB, made string) error {
	f, err := os.OpenFile(made, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // in a folder of our own
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the statement has ended
	for _, text := range []string{`PRAGMA query_only = 0`, `VACUUM INTO ` + quoted(made), `PRAGMA query_only = 1`} {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// quoted returns a text as a literal of SQL.
func quoted(s string) string { return `'` + strings.ReplaceAll(s, `'`, `''`) + `'` }

// backupPostgres copies a database to a new SQLite store, in one transaction that sees the database as it is at
// its start.
func backupPostgres(ctx context.Context, raw, made string, log *zap.Logger) (err error) {
	v, err := OpenView(ctx, raw)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	to, err := Open(ctx, store.SQLite+made, Config{Sealed: true, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if err := to.unsync(ctx); err != nil {
		return err
	}
	tx, err := v.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return scrub(err)
	}
	defer tx.Rollback()                        //nolint:errcheck // it has only read
	if err := checkSame(ctx, tx); err != nil { // in the snapshot, because a server may migrate the store now
		return scrub(err)
	}
	if _, err = copyAll(ctx, v.store(pgQuerier{tx}), to); err != nil {
		return fmt.Errorf("read the database: %w", scrub(err))
	}
	return nil
}

// unsync makes the commits to a SQLite file faster. The caller syncs the file at the end, before it gets its name.
func (s *Store) unsync(ctx context.Context) error {
	d, ok := s.db.(*sqliteDB)
	if !ok {
		return nil
	}
	_, err := d.writes.exec(ctx, `PRAGMA synchronous = OFF`)
	return err
}
