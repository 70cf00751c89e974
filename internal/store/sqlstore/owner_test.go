//go:build unix

package sqlstore_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// TestT_48_RootRestoresForTheOwnerOfTheFolder: also into an empty file that exists, beside which the lock is made.
func TestT_48_RootRestoresForTheOwnerOfTheFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const uid, gid = 12345, 23456
	url, dir := sqliteURL(t), t.TempDir()
	filled(t, url)
	backup := filepath.Join(t.TempDir(), "backup")
	if _, err := sqlstore.Backup(t.Context(), url, backup, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Skip("needs root with the right to change owners:", err)
	}
	empty := filepath.Join(dir, "empty.db")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(empty, uid, gid); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{filepath.Join(dir, "new.db"), empty} {
		if _, err := sqlstore.Restore(t.Context(), backup, "sqlite:"+target, nil); err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 2 {
		t.Fatalf("restored are %v, %v", files, err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		if of, ok := info.Sys().(*syscall.Stat_t); !ok || of.Uid != uid || of.Gid != gid || info.Mode().Perm() != 0o600 {
			t.Errorf("%s belongs to %d:%d and has mode %v", f.Name(), of.Uid, of.Gid, info.Mode())
		}
	}
	if info, err := os.Stat(backup); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("the owner of the backup has changed, or %v", err)
	}
}
