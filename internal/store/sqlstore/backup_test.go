package sqlstore_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
)

// TestP1_BackupIsAStore: a backup of a store, in use or not, has what was acknowledged, only its owner can read it, and it
// can be opened as a store.
func TestP1_BackupIsAStore(t *testing.T) {
	defer syscallUmask(t, 0)()
	for name, used := range map[string]bool{"used": true, "not used": false} {
		t.Run("P1 "+name, func(t *testing.T) {
			from, file := filepath.Join(t.TempDir(), "it's.db"), filepath.Join(t.TempDir(), "copy.db")
			s := opened(t, "sqlite:"+from, sqlstore.Config{})
			create(t, s, "one")
			if !used {
				closed(t, s)
			}
			if err := db.Backup(t.Context(), from, file); err != nil {
				t.Fatal(err)
			}
			if used {
				create(t, s, "two")
				closed(t, s)
			}
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info, err)
			}
			if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
				t.Errorf("left are %v, %v", left, err)
			}
			c := open(t, "sqlite:"+file, sqlstore.Config{})
			if task, _, err := c.Task(t.Context(), key("one")); err != nil || task.GetId() != "one" {
				t.Errorf("the task is %v, %v", task, err)
			}
			if _, _, err := c.Task(t.Context(), key("two")); err == nil {
				t.Error("it has a task that was created later")
			}
		})
	}
}

// TestP15_BackupErrors: a backup replaces nothing, and a store that is damaged, or no store, gives none.
func TestP15_BackupErrors(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	s := opened(t, "sqlite:"+at("good.db"), sqlstore.Config{})
	create(t, s, "one")
	closed(t, s)
	b, err := os.ReadFile(at("good.db"))
	if err != nil {
		t.Fatal(err)
	}
	for page := 4096; page < len(b); page += 4096 {
		b[page] ^= 64 // the kind of the page
	}
	for name, content := range map[string][]byte{"bad.db": b, "empty.db": nil, "text.db": []byte(strings.Repeat("no database ", 200))} {
		if err := os.WriteFile(at(name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ name, store, file, want string }{
		{"no store", "nope.db", "copy", "the file " + at("nope.db") + " does not exist; check the path"},
		{"exists", "good.db", "text.db", "the file " + at("text.db") + " exists; name a new one for the backup"},
		{"itself", "good.db", "good.db", "exists; name a new one"},
		{"no folder", "good.db", "no/copy", "make a folder beside " + at("no/copy")},
		{"damaged", "bad.db", "copy", at("bad.db") + " is damaged"},
		{"empty", "empty.db", "copy", "because no server has used it"},
		{"not a database", "text.db", "copy", "is not a SQLite database"},
	} {
		t.Run("P15 "+c.name, func(t *testing.T) {
			err := db.Backup(t.Context(), at(c.store), at(c.file))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if left, err := filepath.Glob(at("*copy*")); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}
