package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// snapshotSuffixes are the suffixes of a store's files. The database file itself is the last one:
// it is copied when it is certain which other files belong to it.
var snapshotSuffixes = []string{"-journal", "-wal" + setAside, "-wal", ""}

// snapshot copies the files of a store into a private folder and returns the copy's
// name. closeAll removes it. The caller has the lock of the store. Other programs, such
// as sqlite3, do not take that lock: snapshot fails if they change the files meanwhile.
func (d *sqliteDB) snapshot(ctx context.Context, file string) (copied string, err error) {
	before, err := stamps(file)
	if err != nil {
		return "", err
	}
	if d.temp, err = os.MkdirTemp("", "team-server-"); err != nil {
		return "", fmt.Errorf("make a folder for a copy of %s: %w", file, err)
	}
	copied = filepath.Join(d.temp, "store.db")
	for _, suffix := range snapshotSuffixes {
		if _, there := before[suffix]; !there {
			continue
		}
		if err := copyFile(ctx, file+suffix, copied+suffix); err != nil {
			return "", fmt.Errorf("copy %s to a temporary folder, which must have room for it (TMPDIR names another one): %w", file, err)
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
