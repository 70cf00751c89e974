package sqlstore

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentteams/team-server/pkg/a2a"
)

// filesOf returns what the files in a folder hold, but for the lock of the store.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(e.Name(), ".lock") {
			files[e.Name()] = string(b)
		}
	}
	return files
}

// written is a folder with files of a store.
func written(t *testing.T, files map[string][]byte) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for suffix, b := range files {
		if err := os.WriteFile(filepath.Join(dir, "team.db"+suffix), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// What is copied is not written: no byte, whatever state it is in.
func TestSQLite_P15_ASnapshotChangesNothing(t *testing.T) {
	const stored = 5
	db, log := crashed(t, stored)
	ends := commitsOf(log)
	destroyed := bytes.Clone(log)
	copy(destroyed[ends[len(ends)-3]+frameHeader+1000:], bytes.Repeat([]byte{0xa5}, 512))
	closed := func(t *testing.T, change func(s *Store)) (dir string) {
		dir = written(t, map[string][]byte{"": db, "-wal": log})
		s, err := Open(t.Context(), "sqlite:"+filepath.Join(dir, "team.db"), Config{})
		if err != nil {
			t.Fatal(err)
		}
		change(s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for name, c := range map[string]struct {
		dir   func(t *testing.T) string
		tasks int
		why   string // the store is damaged
	}{
		"closed": {dir: func(t *testing.T) string { return closed(t, func(*Store) {}) }, tasks: stored},
		"an older schema": {dir: func(t *testing.T) string {
			return closed(t, func(s *Store) { s.Downgrade(t.Context(), t, 8) })
		}, tasks: stored},
		"the log of a killed process": {dir: func(t *testing.T) string { return written(t, map[string][]byte{"": db, "-wal": log}) }, tasks: stored},
		"a damaged log": {
			dir:   func(t *testing.T) string { return written(t, map[string][]byte{"": db, "-wal": destroyed}) },
			tasks: stored - 2, why: "team.db-wal. Restore",
		},
		"a damaged log that was opened": {dir: func(t *testing.T) string {
			dir := written(t, map[string][]byte{"": db, "-wal": destroyed})
			s, err := Open(t.Context(), "sqlite:"+filepath.Join(dir, "team.db"), Config{})
			if err == nil {
				err = s.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			return dir
		}, tasks: stored - 2, why: "team.db-wal.damaged. Restore"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, temp := c.dir(t), t.TempDir()
			t.Setenv("TMPDIR", temp)
			before := filesOf(t, dir)
			from, err := Open(t.Context(), "sqlite:"+filepath.Join(dir, "team.db"), Config{Snapshot: true})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Open(t.Context(), "sqlite:"+filepath.Join(dir, "team.db"), Config{}); err == nil || !strings.Contains(err.Error(), "in use by another process") {
				t.Errorf("a server on the file that is copied: %v", err)
			}
			if why := from.Ready(); (why == nil) != (c.why == "") || why != nil && !strings.Contains(why.Error(), c.why) {
				t.Errorf("Ready = %v, want %q", why, c.why)
			}
			to := opened(t, fileURL(t), Config{})
			if _, err := Copy(t.Context(), from, to); err != nil {
				t.Error(err)
			}
			if page, err := to.List(t.Context(), "o", a2a.Filter{}); err != nil || page.Total != c.tasks {
				t.Errorf("List of the copy = %d, %v", page.Total, err)
			}
			for i := range c.tasks {
				if _, err := to.Events(t.Context(), a2a.Key{Owner: "o", ID: "task-" + string(rune('0'+i))}, 0, 10); err != nil {
					t.Errorf("task %d of the copy: %v", i, err)
				}
			}
			if err := from.Close(); err != nil {
				t.Error(err)
			}
			if after := filesOf(t, dir); !maps.Equal(before, after) {
				t.Errorf("the files of the source were %d, and are %d and others", len(before), len(after))
			}
			if left := filesOf(t, temp); len(left) > 0 {
				t.Errorf("%d temporary files are left", len(left))
			}
		})
	}
}

// A snapshot is refused while somebody else has the file.
func TestSQLite_ASnapshotOfAServedFileIsRefused(t *testing.T) {
	url := fileURL(t)
	opened(t, url, Config{})
	if _, err := Open(t.Context(), url, Config{Snapshot: true}); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("Open = %v", err)
	}
	gone := fileURL(t)
	if _, err := Open(t.Context(), gone, Config{Snapshot: true}); err == nil || !strings.Contains(err.Error(), "there is no file") {
		t.Errorf("Open = %v", err)
	}
	if _, err := os.Stat(strings.TrimPrefix(gone, "sqlite:")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file has been made: %v", err)
	}
}
