package sqlstore_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cost"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
)

func TestSQLite_P1_WhatIsOnRecordIsThereAgain(t *testing.T) {
	url := sqliteURL(t)
	s, err := sqlstore.Open(t.Context(), url, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	create(t, s, "one")
	record(t, claim(t, s, "r1"), note("x"), note("y"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, url, sqlstore.Config{})
	if got := texts(t, again, "one"); !slices.Equal(got, []string{"x", "y"}) {
		t.Fatalf("on record are %v", got)
	}
	c := claim(t, again, "r2") // at once: nobody else can have had it
	if c.Epoch != 2 {
		t.Errorf("epoch %d, want 2", c.Epoch)
	}
	root, existed, err := again.Create(t.Context(), task("one"))
	if root != "one" || !existed || err != nil {
		t.Errorf("a repeated send after the restart: %q, %v, %v", root, existed, err)
	}
}

// A store that is open cannot be opened once more: neither by the process that has it
// open, nor, after that was refused, by another one.
func TestSQLite_RefusesASecondProcess(t *testing.T) {
	url := os.Getenv("OPENED_STORE") // of the process that started this one
	elsewhere := url != ""
	if !elsewhere {
		url = sqliteURL(t)
		open(t, url, sqlstore.Config{})
	}
	s, err := sqlstore.Open(t.Context(), url, sqlstore.Config{})
	if err == nil {
		_ = s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "in use by another process") || !strings.Contains(err.Error(), "postgres://") {
		t.Fatalf("Open = %v", err)
	}
	if elsewhere {
		return
	}
	other := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	other.Env = append(os.Environ(), "OPENED_STORE="+url)
	if out, err := other.CombinedOutput(); err != nil {
		t.Fatalf("in another process: %v\n%s", err, out)
	}
}

func TestSQLite_FreesItsLock(t *testing.T) {
	url := sqliteURL(t)
	for range 3 {
		s, err := sqlstore.Open(t.Context(), url, sqlstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSQLite_RefusesWhatIsNoStore(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"sqlite:":         "names no file",
		"sqlite:" + text:  "not a SQLite database",
		"sqlite:" + dir:   "is a folder",
		"mysql://x":       "sqlite:FILE or postgres://",
		"postgres://a b/": "not understood",
	} {
		if s, err := sqlstore.Open(t.Context(), url, sqlstore.Config{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%s) = %v, %v, want %q", url, s, err, want)
		}
	}
}

func TestSweep_RetentionDeletesWithEverything(t *testing.T) {
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			s := open(t, url(t), sqlstore.Config{Clock: func() time.Time { return now }, Lease: forever, Retention: 24 * time.Hour})
			for i := range 100 {
				finish(t, s, id(i), note("x"), delta("piece"))
			}
			create(t, s, "goes-on")
			if err := s.PutPush(t.Context(), runs.Push{Task: key(id(7)), Config: &a2av1.TaskPushNotificationConfig{Id: "c", Url: "https://example.com"}}); err != nil {
				t.Fatal(err)
			}
			now = now.Add(2 * time.Hour)
			sweep(t, s)
			records, err := s.Events(t.Context(), key(id(7)), 0, 100)
			if err != nil || len(records) != 3 || records[2].Seq != 4 {
				t.Fatalf("an hour after the end %d events, %v; want 3, the streamed text gone", len(records), err)
			}
			now = now.Add(23 * time.Hour)
			sweep(t, s)
			if _, _, err := s.Task(t.Context(), key(id(7))); !errors.Is(err, runs.ErrNotFound) {
				t.Fatalf("Task after the retention: %v", err)
			}
			if page, err := s.List(t.Context(), me, runs.Filter{}); err != nil || page.Total != 1 || page.Tasks[0].GetId() != "goes-on" {
				t.Fatalf("List = %v, %v", page.Total, err)
			}
			if n := s.Rows(t.Context(), t); n != 7 { // task, run, event, replica of what goes on, three settings
				t.Errorf("%d rows are left", n)
			}
		})
	}
}

func TestSweep_DefinitionsStayWhileRunsAreTiedToThem(t *testing.T) {
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			s := open(t, url(t), sqlstore.Config{Clock: func() time.Time { return now }, Lease: forever, Retention: 24 * time.Hour})
			for _, revision := range []string{"tied", "free"} {
				if err := s.PutDefinition(t.Context(), revision, []byte(revision)); err != nil {
					t.Fatal(err)
				}
			}
			n := task("one")
			n.Accepted.Pins = &teamv1.Pins{Revisions: map[string]string{"a": "tied"}}
			if _, _, err := s.Create(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			now = now.Add(2 * time.Hour)
			sweep(t, s)
			if body, err := s.Definition(t.Context(), "tied"); err != nil || string(body) != "tied" {
				t.Errorf("Definition = %q, %v", body, err)
			}
			if _, err := s.Definition(t.Context(), "free"); !errors.Is(err, runs.ErrNotFound) {
				t.Errorf("Definition that nothing is tied to: %v", err)
			}
			record(t, claim(t, s, "r"), end())
			now = now.Add(25 * time.Hour)
			sweep(t, s)
			if _, err := s.Definition(t.Context(), "tied"); !errors.Is(err, runs.ErrNotFound) {
				t.Errorf("Definition after its last run: %v", err)
			}
		})
	}
}

func sweep(t testing.TB, s *sqlstore.Store) {
	t.Helper()
	if err := s.Sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestCopy_MovesEverything(t *testing.T) {
	for name, url := range urls(t) {
		t.Run("from SQLite to "+name, func(t *testing.T) {
			from, to := open(t, sqliteURL(t), sqlstore.Config{}), open(t, url(t), sqlstore.Config{})
			for i := range 20 {
				finish(t, from, id(i), note("x"), paid("1", "a/b", 7))
			}
			create(t, from, "driven")
			old := claim(t, from, "r")
			record(t, old, note("on record"))
			if err := from.PutDefinition(t.Context(), "rev", []byte("body")); err != nil {
				t.Fatal(err)
			}
			kept := runs.Push{Task: key("driven"), Config: &a2av1.TaskPushNotificationConfig{Id: "mine", Url: "https://example.com", Token: "t"}}
			if err := from.PutPush(t.Context(), kept); err != nil {
				t.Fatal(err)
			}
			if claims, _, err := from.ClaimPushes(t.Context(), 1, time.Hour); err != nil || len(claims) != 1 {
				t.Fatal(claims, err)
			}
			rows, err := sqlstore.Copy(t.Context(), from, to)
			if err != nil || rows < 100 {
				t.Fatalf("Copy = %d, %v", rows, err)
			}
			if c := claim(t, to, "r2"); c.Root != "driven" || c.Epoch != old.Epoch+1 {
				t.Errorf("due is %s under epoch %d", c.Root, c.Epoch)
			}
			if page, err := to.List(t.Context(), me, runs.Filter{}); err != nil || page.Total != 21 {
				t.Errorf("List = %d, %v", page.Total, err)
			}
			if got := texts(t, to, "driven"); !slices.Equal(got, []string{"on record"}) {
				t.Errorf("on record are %v", got)
			}
			if root, existed, err := to.Create(t.Context(), task(id(3))); root != id(3) || !existed || err != nil {
				t.Errorf("a repeated send: %q, %v, %v", root, existed, err)
			}
			if claims, _, err := to.ClaimPushes(t.Context(), 1, time.Hour); err != nil || len(claims) != 1 || !proto.Equal(claims[0].Config, kept.Config) {
				t.Errorf("receivers to be told: %v, %v", claims, err)
			}
			if body, err := to.Definition(t.Context(), "rev"); string(body) != "body" || err != nil {
				t.Errorf("Definition = %q, %v", body, err)
			}
			if micros, _ := costsOf(t, to, cost.Query{}); micros != 140 {
				t.Errorf("costs of %d micros, want 140", micros)
			}
			if _, err := sqlstore.Copy(t.Context(), from, to); err == nil || !strings.Contains(err.Error(), "not empty") {
				t.Errorf("Copy to a store that holds something = %v", err)
			}
		})
	}
}

// TestSQLite_T_42_SecretsAreSealed: what a receiver is told with is nowhere in clear.
func TestSQLite_T_42_SecretsAreSealed(t *testing.T) {
	url := sqliteURL(t)
	s := open(t, url, sqlstore.Config{})
	create(t, s, "one")
	p := runs.Push{Task: key("one"), Config: &a2av1.TaskPushNotificationConfig{
		Id: "mine", Url: "https://example.com/canary", Token: "canary", Authentication: &a2av1.AuthenticationInfo{Scheme: "Bearer", Credentials: "canary"},
	}}
	if err := s.PutPush(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(strings.TrimPrefix(url, "sqlite:") + "*")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err != nil || strings.Contains(string(b), "canary") {
			t.Errorf("%s holds a secret in clear, or %v", f, err)
		}
	}
}

// TestPush_A_18_ADamagedOneIsLeftOut: lists hold the others, page by page, and the
// log says which is missing.
func TestPush_A_18_ADamagedOneIsLeftOut(t *testing.T) {
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			core, log := observer.New(zap.ErrorLevel)
			s := open(t, url(t), sqlstore.Config{Log: zap.New(core)})
			create(t, s, "one")
			for _, id := range []string{"a", "b", "c"} {
				if err := s.PutPush(t.Context(), runs.Push{Task: key("one"), Config: &a2av1.TaskPushNotificationConfig{Id: id, Url: "https://example.com"}}); err != nil {
					t.Fatal(err)
				}
			}
			s.Exec(t.Context(), t, `UPDATE push_config SET body = (SELECT body FROM push_config WHERE config = 'a') WHERE config = 'b'`)
			for limit, want := range map[int][]string{1: {"a"}, 2: {"a", "c"}, 16: {"a", "c"}} {
				list, err := s.ListPushes(t.Context(), key("one"), "", limit)
				ids := []string{}
				for _, p := range list {
					ids = append(ids, p.Config.GetId())
				}
				if err != nil || !slices.Equal(ids, want) {
					t.Errorf("at most %d: %v, %v, want %v", limit, ids, err, want)
				}
			}
			if n := log.FilterField(zap.String("task", "one")).Len(); n == 0 {
				t.Errorf("the log says %v", log.All())
			}
			if _, err := s.Push(t.Context(), key("one"), "b"); !errors.Is(err, runs.ErrDataLoss) {
				t.Errorf("Push of a damaged one: %v", err)
			}
			if err := s.DeletePush(t.Context(), key("one"), "b"); err != nil {
				t.Error(err)
			}
		})
	}
}

// A store of a previous version keeps its mode, which somebody may want so; the log
// says what others can read.
func TestSQLite_T_48_AFileOfOthersIsWarnedOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "team.db")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	core, log := observer.New(zap.WarnLevel)
	open(t, "sqlite:"+file, sqlstore.Config{Log: zap.New(core)})
	if log.FilterMessageSnippet("run chmod 600 "+file+" "+file+".lock").Len() != 1 {
		t.Errorf("the log says %v", log.All())
	}
}
