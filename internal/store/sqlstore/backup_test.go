package sqlstore_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/store/sqlstore"
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
