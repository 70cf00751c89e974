package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/a2a"
)

// filled opens a store with ended and unfinished runs, a conversation and audit records. It stays open.
func filled(t *testing.T, url string) *sqlstore.Store {
	t.Helper()
	s := open(t, url, sqlstore.Config{})
	finish(t, s, "done", note("one"), note("two"))
	create(t, s, "running")
	record(t, claim(t, s, "r"), note("half"))
	create(t, s, "waiting")
	remember(t, s, "c", "done")
	r := audit.New(t.Context(), s.Now(), "halt", "x")
	r.Account = "acme"
	if err := s.AppendAudit(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return s
}

// A backup is made while the store is in use, and restored into a store of either kind.
func TestP1_Backup(t *testing.T) {
	for source, from := range urls(t) {
		for target, to := range urls(t) {
			t.Run("P1 "+source+" to "+target, func(t *testing.T) {
				fromURL, toURL, file := from(t), to(t), filepath.Join(t.TempDir(), "backup")
				filled(t, fromURL)
				made, err := sqlstore.Backup(t.Context(), fromURL, file, false, nil)
				if err != nil {
					t.Fatal(err)
				}
				if made.Tasks != 3 || made.Unfinished != 2 || made.Accounts != 1 || made.Conversations != 1 || made.Audit != 1 {
					t.Errorf("made %+v", made)
				}
				if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || info.Size() != made.Bytes {
					t.Errorf("T-48 %v, %v", info.Mode(), err)
				}
				if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
					t.Errorf("beside the backup: %v, %v", left, err)
				}
				restored, err := sqlstore.Restore(t.Context(), file, toURL, nil)
				if err != nil || restored.Rows != made.Rows {
					t.Fatalf("%+v, %v, want %+v", restored, err, made)
				}
				if _, err := sqlstore.Restore(t.Context(), file, toURL, nil); err == nil || !strings.Contains(err.Error(), "not empty") {
					t.Errorf("restored into a store that is not empty: %v", err)
				}
				s := open(t, toURL, sqlstore.Config{})
				if got := texts(t, s, "done"); len(got) != 2 || got[1] != "two" {
					t.Errorf("done has %v", got)
				}
				claims, _, err := s.Claim(t.Context(), "other", a2a.NewRoom(10, nil))
				if err != nil || len(claims) != 2 {
					t.Errorf("%d runs continue, %v", len(claims), err)
				}
				if got := texts(t, s, "running"); len(got) != 1 || got[0] != "half" {
					t.Errorf("running has %v", got)
				}
				if got := recall(t, s, "c"); len(got.History) != 2 {
					t.Errorf("the conversation has %v", got)
				}
				if head, err := audit.Verify(t.Context(), s, "acme", 0, ""); err != nil || head.Seq != 1 {
					t.Errorf("T-49 audit log: %d, %v", head.Seq, err)
				}
			})
		}
	}
}

// A SQLite store that no server uses, and a file that does not exist.
func TestBackup_File(t *testing.T) {
	url, dir := sqliteURL(t), t.TempDir()
	s, err := sqlstore.Open(t.Context(), url, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	create(t, s, "a")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, copied := filepath.Join(dir, "backup"), filepath.Join(dir, "new", "team.db")
	for range 2 { // the second is a backup of a restored store
		if _, err := sqlstore.Backup(t.Context(), url, file, true, nil); err != nil {
			t.Fatal(err)
		}
		_ = os.RemoveAll(filepath.Dir(copied))
		if c, err := sqlstore.Restore(t.Context(), file, "sqlite:"+copied, nil); err != nil || c.Tasks != 1 {
			t.Fatalf("%+v, %v", c, err)
		}
		if info, err := os.Stat(copied); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("T-48 %v, %v", info.Mode(), err)
		}
		url = "sqlite:" + copied
	}
	if _, err := sqlstore.Backup(t.Context(), url, file, false, nil); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("a file was replaced: %v", err)
	}
	if _, err := sqlstore.Backup(t.Context(), "sqlite:"+filepath.Join(dir, "none"), filepath.Join(dir, "b2"), false, nil); !errors.Is(err, sqlstore.ErrNoStore) {
		t.Errorf("of a file that does not exist: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sqlstore.Backup(ended, url, filepath.Join(dir, "b3"), false, nil); err == nil {
		t.Error("made a backup after the end of its context")
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	hidden, _ := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || len(left)+len(hidden) != 2 { // backup and new
		t.Errorf("left are %v, %v", left, hidden)
	}
}

// P15: a changed backup is found before anything is restored.
func TestP15_DamagedBackup(t *testing.T) {
	url, file := sqliteURL(t), filepath.Join(t.TempDir(), "backup")
	filled(t, url)
	if _, err := sqlstore.Backup(t.Context(), url, file, false, nil); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	body := strings.Index(string(whole), "half") // in the body of an event
	if body < 0 {
		t.Fatal("the event is not found in the file")
	}
	flipped := append([]byte(nil), whole...)
	flipped[body] ^= 1
	for name, bad := range map[string][]byte{
		"flipped": flipped, "cut": whole[:len(whole)-4096], "empty": {}, "text": []byte("no database, but long enough to have a header of one hundred bytes, which is what a SQLite file begins with, always"),
	} {
		t.Run("P15 "+name, func(t *testing.T) {
			target := filepath.Join(t.TempDir(), "team.db")
			if err := os.WriteFile(file, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := sqlstore.Restore(t.Context(), file, "sqlite:"+target, nil); !errors.Is(err, sqlstore.ErrNoBackup) {
				t.Errorf("%v, want ErrNoBackup", err)
			} else {
				t.Log(err)
			}
			if _, err := os.Stat(target); err == nil {
				t.Error("the target exists")
			}
		})
	}
}

// T-49: records that were deleted without a record about it are found.
func TestT_49_DeletedAudit(t *testing.T) {
	for name, url := range urls(t) {
		t.Run("T-49 "+name, func(t *testing.T) {
			s := open(t, url(t), sqlstore.Config{})
			for range 3 {
				r := audit.New(t.Context(), s.Now(), "halt", "x")
				r.Account = "acme"
				if err := s.AppendAudit(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			s.Exec(t.Context(), t, `UPDATE audit_head SET dropped = 1, dropped_hash = (SELECT hash FROM audit WHERE seq = 1)`)
			s.Exec(t.Context(), t, `DELETE FROM audit WHERE seq = 1`)
			if _, err := audit.Verify(t.Context(), s, "acme", 0, ""); !errors.Is(err, audit.ErrBroken) {
				t.Errorf("%v, want ErrBroken", err)
			}
		})
	}
}

// contents returns the names and contents of the files in a folder.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range list {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(text)
	}
	return all
}

// unserved makes a store that no server uses, and returns its file.
func unserved(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "team.db")
	s, err := sqlstore.Open(t.Context(), "sqlite:"+file, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	create(t, s, "a")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

// served makes a backup a store, as a server of an earlier version did: it still has its manifest.
func served(t *testing.T, file string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file)
	if err == nil {
		_, err = db.ExecContext(t.Context(), `PRAGMA journal_mode = WAL`)
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// P15: a backup is not served, which would change it, nor is anything migrated to it; one that a server of an earlier
// version has served is a store.
func TestP15_ABackupIsNoStore(t *testing.T) {
	dir := t.TempDir()
	source, file := unserved(t, t.TempDir()), filepath.Join(dir, "team.backup")
	if _, err := sqlstore.Backup(t.Context(), "sqlite:"+source, file, false, nil); err != nil {
		t.Fatal(err)
	}
	before := contents(t, dir)
	for name, cfg := range map[string]sqlstore.Config{"to serve": {}, "to migrate to": {Sealed: true}} {
		_, err := sqlstore.Open(t.Context(), "sqlite:"+file, cfg)
		if err == nil || !strings.Contains(err.Error(), "is a backup, and a server would change it; restore it to a new store, and use that: team-server restore "+file+" --store ") {
			t.Fatalf("opened %s: %v", name, err)
		}
	}
	found := sqlstore.Inspect(t.Context(), sqlstore.Inspection{URL: "sqlite:" + file})
	last := found[len(found)-1]
	if last.Level != sqlstore.Failed || !strings.Contains(last.Text, "is a backup") || !strings.Contains(last.Do, "team-server restore "+file) {
		t.Errorf("doctor reports %+v", found)
	}
	after := contents(t, dir)
	delete(after, "team.backup.lock") // empty, and beside each file that was opened
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the backup has changed: %s", diff)
	}
	from, err := sqlstore.Open(t.Context(), "sqlite:"+file, sqlstore.Config{Snapshot: true, Sealed: true}) // to copy it
	if err != nil {
		t.Fatal(err)
	}
	if page, err := from.List(t.Context(), me, a2a.Filter{}); err != nil || len(page.Tasks) != 1 {
		t.Errorf("a copy of it has %d tasks, %v", len(page.Tasks), err)
	}
	if err := from.Close(); err != nil {
		t.Fatal(err)
	}

	served(t, file)
	s := open(t, "sqlite:"+file, sqlstore.Config{})
	create(t, s, "b")
	for _, f := range sqlstore.Inspect(t.Context(), sqlstore.Inspection{URL: "sqlite:" + file}) {
		if strings.Contains(f.Text, "is a backup") {
			t.Errorf("doctor reports %+v of a store", f)
		}
	}
}

// killed copies the files of a store that is in use to a folder, as they are left by a server that is killed.
func killed(t *testing.T, url, dir string) {
	t.Helper()
	file := strings.TrimPrefix(url, "sqlite:")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		text, err := os.ReadFile(file + suffix)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "team.db"+suffix), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// P15: a backup replaces only backups: not the store, also by another name, no store that a server uses or has used,
// and no other file.
func TestP15_BackupTarget(t *testing.T) {
	dir := t.TempDir()
	file := unserved(t, dir)
	if err := os.Rename(file+".lock", filepath.Join(t.TempDir(), "lock")); err != nil {
		t.Fatal(err)
	}
	url, in := "sqlite:"+file, func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"old.bak", "served.bak", "crashed.bak"} {
		if _, err := sqlstore.Backup(t.Context(), url, in(name), false, nil); err != nil {
			t.Fatal(err)
		}
	}
	served(t, in("served.bak"))
	for name, text := range map[string]string{"team.yaml": "version: v2", "crashed.bak-wal": "x", "gone.bak-wal": "x"} {
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(file, in("link.db")), os.Link(file, in("hard.db"))); err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	used := filepath.Join(elsewhere, "used.db")
	open(t, "sqlite:"+used, sqlstore.Config{})
	before := contents(t, dir)
	for _, c := range []struct{ source, file, want string }{
		{file, file, "is the store itself"},
		{in("link.db"), file, "is the store itself"},
		{file, in("link.db"), "is not a regular file"},
		{file, in("hard.db"), "is the store itself"},
		{file, used, "a server uses"},
		{file, in("served.bak"), "is not a backup"},
		{file, in("crashed.bak"), "crashed.bak-wal: these files belong to an earlier store"},
		{file, in("gone.bak"), "gone.bak-wal: these files belong to an earlier store"},
		{file, in("team.db-wal"), "is that of a file of the store"},
		{file, in("team.db.lock"), "is that of a file of the store"},
		{file, in("team.yaml"), "is not a backup, and --force replaces only backups"},
	} {
		_, err := sqlstore.Backup(t.Context(), "sqlite:"+c.source, c.file, true, nil)
		if of := (sqlstore.FileError{}); !errors.As(err, &of) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("P15 %s to %s: %v, want %q", c.source, c.file, err, c.want)
		}
	}
	if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
		t.Errorf("files have changed: %s", diff)
	}
	if _, err := sqlstore.Backup(t.Context(), url, in("old.bak"), true, nil); err != nil {
		t.Errorf("a backup is not replaced: %v", err)
	}
}

// P15: nothing is restored beside the log of an earlier store, which would be applied to the new one.
func TestP15_RestoreBesideLog(t *testing.T) {
	url, file := sqliteURL(t), filepath.Join(t.TempDir(), "backup")
	filled(t, url)
	if _, err := sqlstore.Backup(t.Context(), url, file, false, nil); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(db string) error{
		"without the file": os.Remove,
		"empty file":       func(db string) error { return os.Truncate(db, 0) },
		"whole":            func(string) error { return nil },
		"shm only":         func(db string) error { return errors.Join(os.Remove(db), os.Remove(db+"-wal")) },
	} {
		t.Run("P15 "+name, func(t *testing.T) {
			dir := t.TempDir()
			killed(t, url, dir)
			target := filepath.Join(dir, "team.db")
			if err := change(target); err != nil {
				t.Fatal(err)
			}
			before := contents(t, dir)
			_, err := sqlstore.Restore(t.Context(), file, "sqlite:"+target, nil)
			if err == nil || !strings.Contains(err.Error(), target+"-shm: these files belong to an earlier store, and would damage a new one; move them away together") {
				t.Errorf("%v", err)
			}
			if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
				t.Errorf("files have changed: %s", diff)
			}
		})
	}
}

// A restoration that is refused leaves nothing beside its target.
func TestRestoreRefused(t *testing.T) {
	dir, targets := t.TempDir(), t.TempDir()
	source, file := unserved(t, dir), filepath.Join(dir, "backup")
	if _, err := sqlstore.Backup(t.Context(), "sqlite:"+source, file, false, nil); err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(targets, name) }
	db, err := sql.Open("sqlite", in("foreign.db"))
	if err == nil {
		_, err = db.ExecContext(t.Context(), `CREATE TABLE t (a)`)
	}
	if err := errors.Join(err, db.Close(), os.Symlink(in("none"), in("dangling.db"))); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file, target, want string
		ofFile             bool
	}{
		{file, in("foreign.db"), "is the database of another program", false},
		{file, in("dangling.db"), "is a link to a file that does not exist", false},
		{file, file, "is not empty", false},
		{filepath.Join(dir, "none"), in("new.db"), "the file " + filepath.Join(dir, "none") + " does not exist; check the path", true},
		{dir, in("new.db"), dir + " is not a regular file", true},
		{source, in("new.db"), source + ": it is not a complete backup: it has no manifest", true},
	} {
		_, err := sqlstore.Restore(t.Context(), c.file, "sqlite:"+c.target, nil)
		if of := (sqlstore.FileError{}); err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, &of) != c.ofFile {
			t.Errorf("%s to %s: %v, want %q", c.file, c.target, err, c.want)
		}
	}
	if list, err := os.ReadDir(targets); err != nil || len(list) != 2 {
		t.Errorf("left are %v, %v", list, err)
	}
	if exists := func(name string) bool { _, err := os.Stat(name); return err == nil }; exists(file+".lock") || exists(file+"-wal") {
		t.Error("there are files beside the backup")
	}
}

// A store in a folder that cannot be written is backed up, also with its log, and nothing is left beside it.
func TestBackupOfReadOnlyFolder(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write everywhere")
	}
	url := sqliteURL(t)
	filled(t, url)
	dir := t.TempDir()
	killed(t, url, dir)
	source := filepath.Join(dir, "team.db")
	if err := errors.Join(os.Remove(source+"-shm"), os.Chmod(source, 0o400), os.Chmod(dir, 0o500)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	c, err := sqlstore.Backup(t.Context(), "sqlite:"+source, filepath.Join(t.TempDir(), "backup"), false, nil)
	if err != nil || c.Tasks != 3 {
		t.Errorf("%+v, %v", c, err)
	}
	if err := os.Chmod(source, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlstore.Backup(t.Context(), "sqlite:"+source, filepath.Join(t.TempDir(), "backup"), false, nil); err == nil || !strings.Contains(err.Error(), "cannot be read by this user") {
		t.Errorf("backup without rights: %v", err)
	}
	if _, err := sqlstore.OpenView(t.Context(), "sqlite:"+source); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("view without rights: %v", err)
	}
}

// A backup leaves no file beside the store.
func TestBackupLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	source := unserved(t, dir)
	if err := os.Remove(source + ".lock"); err != nil {
		t.Fatal(err)
	}
	before := contents(t, dir)
	if _, err := sqlstore.Backup(t.Context(), "sqlite:"+source, filepath.Join(t.TempDir(), "backup"), false, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
		t.Errorf("files have changed: %s", diff)
	}
}

// A damaged store is not backed up, and not changed. The error names its files.
func TestBackupOfDamagedStore(t *testing.T) {
	url := sqliteURL(t)
	filled(t, url)
	for name, c := range map[string]struct {
		suffix string
		at     int64
		want   string
	}{
		"file": {"", 4096, "Check the disk"},
		"log":  {"-wal", 32 + 24 + 100, "its write-ahead log was damaged at byte"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			killed(t, url, dir)
			source := filepath.Join(dir, "team.db")
			if name == "file" { // of which nothing is in the log
				dir = t.TempDir()
				source = unserved(t, dir)
			}
			f, err := os.OpenFile(source+c.suffix, os.O_RDWR, 0)
			if err == nil {
				_, err = f.WriteAt([]byte("damage damage damage"), c.at)
			}
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			before, target := contents(t, dir), t.TempDir()
			_, err = sqlstore.Backup(t.Context(), "sqlite:"+source, filepath.Join(target, "backup"), false, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "the store is damaged, so a backup would be, too") || !strings.Contains(err.Error(), source+c.suffix) {
				t.Errorf("%v, want %q and the name of the file", err, c.want)
			}
			if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
				t.Errorf("files have changed: %s", diff)
			}
			if left, err := os.ReadDir(target); err != nil || len(left) > 0 {
				t.Errorf("left are %v, %v", left, err)
			}
		})
	}
}

// The error for a role that may not read the store says what the role needs.
func TestBackupWithoutRights(t *testing.T) {
	url := pgtest.URL(t)
	s := open(t, url, sqlstore.Config{})
	role := fmt.Sprintf("reader_%d", time.Now().UnixNano()) // roles are those of the whole server
	s.Exec(t.Context(), t, `CREATE ROLE `+role+` LOGIN`)
	limited, dir := strings.Replace(url, "postgres@", role+"@", 1), t.TempDir()
	const noUse = "no schema of the search path exists and may be used by the role of the URL; use the role of the servers"
	if _, err := sqlstore.OpenView(t.Context(), limited); err == nil || !strings.Contains(err.Error(), noUse) {
		t.Errorf("without the schema: %v", err)
	}
	s.Exec(t.Context(), t, `DO $$ BEGIN EXECUTE 'GRANT USAGE ON SCHEMA ' || quote_ident(current_schema()) || ' TO `+role+`'; END $$`)
	const noRead = "may not read the store: permission denied for table goose_db_version; use the role of the servers, or GRANT"
	if _, err := sqlstore.Backup(t.Context(), limited, filepath.Join(dir, "backup"), false, nil); err == nil || !strings.Contains(err.Error(), noRead) {
		t.Errorf("backup: %v", err)
	}
	v, err := sqlstore.OpenView(t.Context(), limited)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if _, err := v.Stats(t.Context(), 1); err == nil || !strings.Contains(err.Error(), noRead) {
		t.Errorf("stats: %v", err)
	}
}

// P15: a backup names the tasks, conversations and boards of which a record is damaged. It has the rest, and replaces no
// older backup.
func TestP15_BackupOfDamagedRecords(t *testing.T) {
	for name, from := range urls(t) {
		t.Run("P15 "+name, func(t *testing.T) {
			url, dir := from(t), t.TempDir()
			s := filled(t, url)
			if _, _, err := s.Create(t.Context(), withFile("big", file(48<<10, "cat"))); err != nil {
				t.Fatal(err)
			}
			p := board.Place{Key: board.Key{Account: "acme", Team: "desk"}, Actor: &teamv1.BoardActor{Principal: "acme/ann"}}
			if _, err := board.New(s).AddWorkItem(t.Context(), p, &teamv1.AddWorkItemRequest{ItemId: "a", Title: "a"}); err != nil {
				t.Fatal(err)
			}
			if _, _, err := s.Put(t.Context(), key("waiting"), followUp("f"), []byte("d"), nil); err != nil {
				t.Fatal(err)
			}
			whole, damaged := filepath.Join(dir, "whole"), filepath.Join(dir, "damaged")
			if _, err := sqlstore.Backup(t.Context(), url, whole, false, nil); err != nil {
				t.Fatalf("of a store without damage: %v", err)
			}
			before := contents(t, dir)

			s.Exec(t.Context(), t, `UPDATE event SET sum = sum + 1 WHERE id = 'running' AND seq = 2`)
			s.Exec(t.Context(), t, `UPDATE inbox SET sum = 0 WHERE id = 'waiting'`)
			s.Exec(t.Context(), t, `UPDATE task SET snap_sum = snap_sum + 1 WHERE id = 'done'`)
			s.Exec(t.Context(), t, `UPDATE blob SET body = hash WHERE id = 'big'`)
			s.Exec(t.Context(), t, `UPDATE history SET n = n + 10`)
			s.Exec(t.Context(), t, `UPDATE work_item SET sum = 0`)
			_, err := sqlstore.Backup(t.Context(), url, whole, true, nil)
			if err == nil || !strings.Contains(err.Error(), "whole was not replaced") {
				t.Errorf("replaced a backup: %v", err)
			}
			if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
				t.Errorf("files have changed: %s", diff)
			}
			made, err := sqlstore.Backup(t.Context(), url, damaged, false, nil)
			const names = "task big, task running, task waiting, task done, conversation c, board of desk. "
			if err == nil || made.Tasks != 4 || !strings.Contains(err.Error(), "do not have their checksum: "+names) {
				t.Fatalf("%+v, %v", made, err)
			}
			to := sqliteURL(t)
			if _, err := sqlstore.Restore(t.Context(), damaged, to, nil); err != nil {
				t.Errorf("the rest cannot be restored: %v", err)
			}

			for i := range 12 {
				create(t, s, id(i))
			}
			s.Exec(t.Context(), t, `UPDATE event SET sum = sum + 1 WHERE id LIKE 't0%'`)
			if _, err = sqlstore.Backup(t.Context(), url, damaged+"2", false, nil); err == nil || !strings.Contains(err.Error(), ", and 8 others. ") {
				t.Errorf("with many damaged tasks: %v", err)
			}
		})
	}
}
