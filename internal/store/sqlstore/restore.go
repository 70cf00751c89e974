package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/store"
)

// Restore verifies a backup and copies it to an empty store: a database without rows, or a file that does not
// exist or is an empty store, and has no files of another store beside it. Runs that had not ended at the backup
// continue when a server opens the store. If it fails, a file that did not exist does not exist. The error wraps
// ErrPartial if a store that existed must be emptied before the next try.
func Restore(ctx context.Context, file, raw string, log *zap.Logger) (c Content, err error) {
	if err := CheckURL(raw); err != nil {
		return Content{}, err
	}
	target, isFile := strings.CutPrefix(raw, store.SQLite)
	if isFile {
		if err := checkRestorable(ctx, target); err != nil {
			return Content{}, err
		}
	}
	dir, err := os.MkdirTemp("", "team-server-")
	if err != nil {
		return Content{}, fmt.Errorf("make a folder for a copy of %s: %w", file, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	copied := filepath.Join(dir, "store.db") // the file itself may be on a medium that cannot be written
	if err := copyBackup(ctx, file, copied); err != nil {
		return Content{}, err
	}
	if c, err = verifyBackup(ctx, copied); err != nil {
		return Content{}, fileErrorf("%s: %w", file, err)
	}
	from, err := Open(ctx, store.SQLite+copied, Config{Sealed: true, Log: log, backup: true})
	if err != nil {
		return Content{}, fileErrorf("%s: open a copy: %w", file, err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if !isFile || exists(target) {
		err = restoreInto(ctx, from, raw, Copy, log)
		if lock := target + ".lock"; err == nil && isFile && exists(lock) {
			err = giveToFolder(lock, filepath.Dir(target))
		}
	} else {
		err = restoreFile(ctx, from, target, log)
	}
	if err != nil && isFile {
		err = explainFull(target, err)
	}
	if err == nil && isFile {
		err = checkRestored(ctx, target)
	}
	return c, err
}

// copyBackup copies the file of a backup.
func copyBackup(ctx context.Context, file, copied string) error {
	switch info, err := os.Stat(file); {
	case errors.Is(err, fs.ErrNotExist):
		return fileErrorf("the file %s does not exist; check the path", file)
	case err != nil:
		return FileError{err}
	case !info.Mode().IsRegular():
		return fileErrorf("%s is not a regular file; name the file of a backup", file)
	}
	if err := copyFile(ctx, file, copied); err != nil {
		return FileError{explainCopy(file, err)}
	}
	return nil
}

// checkRestorable returns an error if a backup must not be restored into a file.
func checkRestorable(ctx context.Context, file string) error {
	if err := checkUnused(ctx, file); err != nil {
		return err
	}
	if !exists(file) {
		if _, err := os.Lstat(file); err == nil {
			return fmt.Errorf("%s is a link to a file that does not exist; name the file itself", file)
		}
		return nil
	}
	v, err := viewSQLite(ctx, file)
	if errors.Is(err, ErrNoStore) { // it is empty
		return nil
	}
	if err != nil {
		return err
	}
	defer v.Close() //nolint:errcheck // only read
	have, known, err := v.Schema(ctx)
	if err != nil || have != known { // Copy checks it after its schema is updated
		return err
	}
	return v.store(pgQuerier{v.db}).checkEmpty(ctx)
}

// checkRestored opens a restored store and checks its structure.
func checkRestored(ctx context.Context, file string) (err error) {
	v, err := viewSQLite(ctx, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if !v.InUse { // by a server that was started at once
		if err := checkUnused(ctx, v.File); err != nil {
			return err
		}
	}
	err = checkSame(ctx, v.db)
	if err == nil {
		err = checkPages(ctx, v.db, file)
	}
	if err == nil {
		err = checkIndexes(ctx, v.db, file)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("the restored store cannot be used; check the disk, move %s away and restore it again: %w", file, err)
	}
	return err
}

// restoreInto copies a backup to a store.
func restoreInto(ctx context.Context, from *Store, raw string, copyTo func(ctx context.Context, from, to *Store) (int64, error), log *zap.Logger) (err error) {
	to, err := Open(ctx, raw, Config{Sealed: true, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	_, err = copyTo(ctx, from, to)
	return err
}

// restoreNew copies a backup to a new store whose file the caller syncs afterwards.
func restoreNew(ctx context.Context, from, to *Store) (int64, error) {
	if err := to.unsync(ctx); err != nil {
		return 0, err
	}
	return copyAll(ctx, from, to)
}

// restoreFile copies a backup to a file that does not exist, and which gets its name when it is complete.
func restoreFile(ctx context.Context, from *Store, file string, log *zap.Logger) (err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("make the folder of the store: %w", err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), ".team-server-restore-")
	if err != nil {
		return fmt.Errorf("make a folder beside %s: %w", file, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	made := filepath.Join(dir, "store.db")
	if err := restoreInto(ctx, from, store.SQLite+made, restoreNew, log); err != nil {
		return err
	}
	if exists(made + "-wal") {
		return errors.New("the log of the restored store was not written back; check the disk, and try again")
	}
	if err := giveToFolder(made, filepath.Dir(file)); err != nil {
		return err
	}
	return publish(made, file, false, func() error { return checkRestorable(ctx, file) })
}
