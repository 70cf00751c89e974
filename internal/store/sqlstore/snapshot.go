package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// logSuffixes are the suffixes of the files whose content belongs to a store, beside the database file.
var logSuffixes = []string{"-journal", "-wal" + setAside, "-wal"}

// snapshotSuffixes are the suffixes of a store's files. The database file itself is the last one:
// it is copied when it is certain which other files belong to it.
var snapshotSuffixes = slices.Concat(logSuffixes, []string{""})

// snapshot copies the files of a store into a private folder and returns the copy's
// name. closeAll removes it. The caller has the lock of the store.
func (d *sqliteDB) snapshot(ctx context.Context, file string) (copied string, err error) {
	if d.temp, err = os.MkdirTemp("", "team-server-"); err != nil {
		return "", fmt.Errorf("make a folder for a copy of %s: %w", file, err)
	}
	return copyStore(ctx, file, d.temp)
}

// copyStore copies the files of a store into a folder and returns the copy's name. Other
// programs, such as sqlite3, do not take the lock of a store: copyStore fails if they
// change the files meanwhile.
func copyStore(ctx context.Context, file, folder string) (copied string, err error) {
	before, err := stamps(file)
	if err != nil {
		return "", err
	}
	copied = filepath.Join(folder, "store.db")
	for _, suffix := range snapshotSuffixes {
		if _, there := before[suffix]; !there {
			continue
		}
		if err := copyFile(ctx, file+suffix, copied+suffix); err != nil {
			return "", explainCopy(file+suffix, err)
		}
	}
	after, err := stamps(file)
	if err != nil {
		return "", err
	}
	for _, suffix := range snapshotSuffixes {
		if before[suffix] != after[suffix] {
			return "", fmt.Errorf("%s%s was changed while it was copied; stop the program that uses it, and start again", file, suffix)
		}
	}
	return copied, nil
}

// explainCopy says what to do about an error of copying a file to a temporary folder.
func explainCopy(file string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("the folder for temporary files %s has no room for a copy of %s; free space, or name another folder with TMPDIR", os.TempDir(), file)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s cannot be read by this user; run this as its owner: %w", file, err)
	}
	return fmt.Errorf("copy %s to a temporary folder: %w", file, err)
}

// stamp is the size and the modification time of a file, which reveal a change of it.
type stamp struct{ size, modified int64 }

// stamps returns the stamps of the files of a store that exist, by suffix.
func stamps(file string) (map[string]stamp, error) {
	list := map[string]stamp{}
	for _, suffix := range snapshotSuffixes {
		info, err := os.Stat(file + suffix)
		if errors.Is(err, fs.ErrNotExist) && suffix != "" {
			continue
		}
		if err != nil {
			return nil, err
		}
		list[suffix] = stamp{info.Size(), info.ModTime().UnixNano()}
	}
	return list, nil
}

// copyFile copies a file to a new one that only its owner can read.
func copyFile(ctx context.Context, from, to string) error {
	source, err := os.Open(from) //nolint:gosec // the store, or beside it
	if err != nil {
		return err
	}
	defer source.Close()                                                      //nolint:errcheck // only read
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // as the caller names it
	if err != nil {
		return err
	}
	const piece = 64 << 20 // the number of bytes after which the end of ctx is noticed
	for err == nil {
		if err = context.Cause(ctx); err == nil {
			_, err = io.CopyN(target, source, piece)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, target.Sync(), target.Close())
}
