package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	sqlite3 "modernc.org/sqlite/lib"
)

// Backup writes a copy of a SQLite store, as it is at one moment, to a file that does not exist, and checks the copy. A
// server may use the store meanwhile. The copy gets its name when it is complete and synced. It is a store
// itself: to restore it, copy it to a path at which no store exists.
func Backup(ctx context.Context, store, file string) (err error) {
	if !exists(store) {
		return fmt.Errorf("the file %s does not exist; check the path", store)
	}
	if exists(file) {
		return fmt.Errorf("the file %s exists; name a new one for the backup", file)
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), ".team-server-backup-")
	if err != nil {
		return fmt.Errorf("make a folder beside %s for the backup: %w", file, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := checkUnusedLog(ctx, store); err != nil {
		return err
	}
	made := filepath.Join(dir, "store.db")
	if err := undisturbed(store, func(alone bool) error { return vacuumInto(ctx, store, made, alone) }); noRoom(err) || errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("the disk of %s is full; free space, or name a file on another disk", file)
	} else if err != nil {
		return explainSQLite(store, err)
	}
	if err := checkBackup(ctx, made, store); err != nil {
		return err
	}
	if err := os.Link(made, file); err != nil { // fails if the file was made meanwhile; the folder is removed with the other name
		return fmt.Errorf("name the backup: %w", err)
	}
	return syncFolder(file)
}

// checkUnusedLog checks the log of a store that no server uses. A server has checked it at its start.
func checkUnusedLog(ctx context.Context, file string) error {
	used, err := locked(ctx, file)
	if err != nil || used {
		return err
	}
	if err := checkLog(file); err != nil {
		return fmt.Errorf("%s cannot be backed up: %w", file, err)
	}
	return nil
}

// locked reports whether a process has opened a SQLite store.
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

// undisturbed calls read. alone is true if no process has the store open: SQLite then reads the file without a lock. If a
// server opens the file during such a read, undisturbed calls read again.
func undisturbed(file string, read func(alone bool) error) error {
	for {
		alone := !exists(file + "-wal")
		before, err := os.Stat(file)
		if err != nil {
			return err
		}
		err = read(alone)
		after, changed := os.Stat(file)
		if !alone || changed == nil && !exists(file+"-wal") && after.Size() == before.Size() && after.ModTime().Equal(before.ModTime()) {
			return err
		}
		if changed != nil {
			return changed
		}
	}
}

// vacuumInto copies a store to a file that only its owner can read, and overwrites an existing file. alone means that no
// process has the store open.
func vacuumInto(ctx context.Context, store, made string, alone bool) (err error) {
	db, err := openRead(ctx, store, alone)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := os.WriteFile(made, nil, 0o600); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, `VACUUM INTO $1`, made); err != nil {
		return err
	}
	f, err := os.OpenFile(made, os.O_RDWR, 0) //nolint:gosec // in a folder of our own
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// checkBackup checks the structure of a backup and its indexes. A store that is damaged gives a damaged one.
func checkBackup(ctx context.Context, made, store string) (err error) {
	db, err := openRead(ctx, made, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	found, err := findings(ctx, db, fmt.Sprintf("PRAGMA integrity_check(%d)", maxFindings))
	if err == nil && len(found) > 0 {
		return fmt.Errorf("the store %s is damaged, so its backup is too, and was not kept: %s; check the disk, and see docs/durability.md", store, strings.Join(found, "; "))
	}
	return err
}

// openRead opens the file of a store to read it. alone means that no process has it open; then SQLite creates no
// further files beside it.
func openRead(ctx context.Context, file string, alone bool) (*sql.DB, error) {
	options := "?mode=ro&_pragma=busy_timeout(5000)"
	if alone {
		options += "&immutable=1"
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+options)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(2)
	tables, err := foreign(ctx, db, file)
	if err == nil && tables == 0 {
		err = fmt.Errorf("%w: %s is empty, because no server has used it", errNoStore, file)
	}
	if err != nil {
		return nil, errors.Join(explainRead(file, err), db.Close())
	}
	return db, nil
}

// errNoStore is wrapped by the error of openRead for a file that no server has used yet.
var errNoStore = errors.New("there is no store yet")

// explainRead says what to do about an error of reading a SQLite store, which need not be writable.
func explainRead(file string, err error) error {
	switch code(err) & 0xff {
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return fmt.Errorf("%s and the files beside it cannot be read; run this as the user of the server: %w", file, err)
	}
	return explainSQLite(file, err)
}
