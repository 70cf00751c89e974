package sqlstore_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/secret"
)

// keyOf returns an encryption key whose bytes are all the same.
func keyOf(id string, b byte) secret.Key {
	return secret.Key{ID: id, Value: secret.New(base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(b)), 32))))}
}

// under returns a configuration with encryption keys and a short time between the passes.
func under(keys ...secret.Key) sqlstore.Config {
	return sqlstore.Config{Keys: keys, Lease: 300 * time.Millisecond}
}

// webhook registers a webhook whose token is its id.
func webhook(t testing.TB, s *sqlstore.Store, task, id string) {
	t.Helper()
	c := &a2av1.TaskPushNotificationConfig{Id: id, Url: "https://example.com/" + id, Token: "canary-" + id}
	if err := s.PutPush(context.Background(), a2a.Push{Task: key(task), Config: c}); err != nil {
		t.Fatal(err)
	}
}

// readable fails the test unless the webhooks of a task have their tokens.
func readable(t testing.TB, s *sqlstore.Store, task string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if p, err := s.Push(context.Background(), key(task), id); err != nil || p.Config.GetToken() != "canary-"+id {
			t.Errorf("webhook %s: token %q, %v", id, p.Config.GetToken(), err)
		}
	}
}

// encrypted waits until the secrets of a store, and the key of its page tokens, are encrypted under one key,
// and no other one is registered.
func encrypted(t testing.TB, s *sqlstore.Store, key string, webhooks int) {
	t.Helper()
	until(t, fmt.Sprintf("%d webhooks under the key %q", webhooks, key), func() bool {
		return maps.Equal(s.SealedUnder(context.Background(), t), map[string]int{key: webhooks + 1}) && slices.Equal(s.Registered(context.Background(), t), []string{key})
	})
}

// refused fails the test unless a store cannot be opened, with an error that has all parts of a text.
func refused(t testing.TB, url string, cfg sqlstore.Config, parts ...string) {
	t.Helper()
	s, err := sqlstore.Open(context.Background(), url, cfg)
	if err == nil {
		_ = s.Close()
		t.Fatalf("opened, want an error with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q has no %q", err, part)
		}
	}
	for _, k := range cfg.Keys {
		if strings.Contains(err.Error(), k.Value.Reveal()) {
			t.Errorf("error with a key: %v", err)
		}
	}
}

func closed(t testing.TB, s *sqlstore.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// opened opens a store that the test closes itself.
func opened(t testing.TB, url string, cfg sqlstore.Config) *sqlstore.Store {
	t.Helper()
	s, err := sqlstore.Open(context.Background(), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEncryption_KeyIsConfiguredAndReplaced: what a store without a key had is encrypted under the configured
// one, then under the next one; page tokens stay valid, and the store does not open without its key.
func TestEncryption_KeyIsConfiguredAndReplaced(t *testing.T) {
	one, two := keyOf("one", 1), keyOf("two", 2)
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			at := url(t)
			s := opened(t, at, under())
			create(t, s, "a", "b", "c")
			webhook(t, s, "a", "x")
			webhook(t, s, "a", "y")
			page, err := s.List(t.Context(), me, a2a.Filter{PageSize: 1})
			if err != nil || page.NextToken == "" {
				t.Fatal(page, err)
			}
			next := a2a.Filter{PageSize: 1, PageToken: page.NextToken}
			closed(t, s)

			core, log := observer.New(zap.InfoLevel)
			cfg := under(one)
			cfg.Log = zap.New(core)
			s = opened(t, at, cfg)
			readable(t, s, "a", "x", "y")
			webhook(t, s, "a", "z")
			encrypted(t, s, "one", 3)
			readable(t, s, "a", "x", "y", "z")
			until(t, "the log", func() bool { return log.FilterMessageSnippet(`are encrypted under the key "one"`).Len() == 1 })
			closed(t, s)

			refused(t, at, under(), `the key "one", which is not configured`, `server: {encryption: {keys: [{id: "one", value:`, "team-server store forget-secrets --key one")
			refused(t, at, under(two), `the key "one", which is not configured`)
			refused(t, at, under(keyOf("one", 3)), `the encryption key "one" does not have the value that encrypted the store`)
			refused(t, at, under(keyOf("one", 3), one), `encryption key "one"`, "is given twice")
			refused(t, at, under(secret.Key{ID: "one", Value: secret.New("short")}), `encryption key "one": value must be 32 bytes`)

			core, log = observer.New(zap.InfoLevel)
			cfg = under(two, one)
			cfg.Log = zap.New(core)
			s = opened(t, at, cfg)
			readable(t, s, "a", "x", "y", "z")
			encrypted(t, s, "two", 3)
			until(t, "the log", func() bool { return log.FilterMessageSnippet(`remove ["one"] from server.encryption.keys`).Len() == 1 })
			closed(t, s)

			refused(t, at, under(one), `the key "two", which is not configured`)
			s = open(t, at, under(two))
			readable(t, s, "a", "x", "y", "z")
			if page, err := s.List(t.Context(), me, next); err != nil || len(page.Tasks) != 1 {
				t.Errorf("the next page: %v, %v", page, err)
			}
		})
	}
}

// TestEncryption_LostKey: what a lost key has encrypted can be deleted, and nothing else.
func TestEncryption_LostKey(t *testing.T) {
	one, two := keyOf("one", 1), keyOf("two", 2)
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			at := url(t)
			s := opened(t, at, under(one))
			create(t, s, "a")
			webhook(t, s, "a", "x")
			encrypted(t, s, "one", 1)
			closed(t, s)
			s = opened(t, at, sqlstore.Config{Sealed: true})
			webhook(t, s, "a", "y") // by the key in the store, as if it had not been encrypted again yet
			closed(t, s)

			if _, err := sqlstore.ForgetSecrets(t.Context(), at, "two", nil); err == nil || !strings.Contains(err.Error(), `under the key "two"; keys of the store: one`) {
				t.Errorf("forgot a key that the store does not have: %v", err)
			}
			if n, err := sqlstore.ForgetSecrets(t.Context(), at, "one", nil); n != 1 || err != nil {
				t.Fatalf("ForgetSecrets = %d, %v", n, err)
			}
			s = opened(t, at, under())
			readable(t, s, "a", "y")
			if list, err := s.ListPushes(t.Context(), key("a"), "", 10); err != nil || len(list) != 1 {
				t.Errorf("%d webhooks, %v", len(list), err)
			}
			if _, err := s.List(t.Context(), me, a2a.Filter{PageSize: 1}); err != nil {
				t.Error(err)
			}
			closed(t, s)
			s = open(t, at, under(two))
			encrypted(t, s, "two", 1)
			readable(t, s, "a", "y")
		})
	}
}

// TestEncryption_Copies: a copy needs no key, and then opens with the key of the original only.
func TestEncryption_Copies(t *testing.T) {
	one := keyOf("one", 1)
	for name, url := range urls(t) {
		for target, to := range urls(t) {
			t.Run(name+" to "+target, func(t *testing.T) {
				from, at := url(t), to(t)
				s := opened(t, from, under(one))
				create(t, s, "a")
				webhook(t, s, "a", "x")
				encrypted(t, s, "one", 1)
				closed(t, s)
				source := opened(t, from, sqlstore.Config{Sealed: true})
				copied := opened(t, at, sqlstore.Config{Sealed: true})
				if _, err := sqlstore.Copy(t.Context(), source, copied); err != nil {
					t.Fatal(err)
				}
				closed(t, source)
				closed(t, copied)
				refused(t, at, under(), `the key "one", which is not configured`)
				s = open(t, at, under(one))
				readable(t, s, "a", "x")
				encrypted(t, s, "one", 1)
			})
		}
	}
}

// TestEncryption_WaitsForAllReplicas: a replica encrypts under a new key only when all others have it, and one
// without a key that is in use stops instead of failing deliveries.
func TestEncryption_WaitsForAllReplicas(t *testing.T) {
	one, two := keyOf("one", 1), keyOf("two", 2)
	at := pgtest.URL(t)
	old := opened(t, at, sqlstore.Config{})
	if err := old.Beat(t.Context(), "old"); err != nil {
		t.Fatal(err)
	}
	create(t, old, "a")
	core, log := observer.New(zap.InfoLevel)
	fresh := open(t, at, sqlstore.Config{Keys: []secret.Key{one}, Log: zap.New(core)})
	webhook(t, fresh, "a", "x")
	readable(t, old, "a", "x")
	if err := fresh.EncryptionPass(t.Context()); err == nil || !strings.Contains(err.Error(), `the encryption key "one" is not used yet, because these servers with the same store do not have it: old; restart them`) {
		t.Errorf("a pass beside a replica without the key: %v", err)
	}
	until(t, "the log", func() bool {
		return log.FilterMessageSnippet("server.encryption: ").Len() == 1
	})
	if got := fresh.SealedUnder(t.Context(), t); got["one"] != 0 || len(fresh.Registered(t.Context(), t)) != 0 {
		t.Errorf("encrypted under %v, registered %v", got, fresh.Registered(t.Context(), t))
	}
	closed(t, old)
	silent := opened(t, at, under()) // it has no replica, and so nobody knows of it
	if err := fresh.EncryptionPass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fresh.SealedUnder(t.Context(), t); !maps.Equal(got, map[string]int{"one": 2}) {
		t.Errorf("encrypted under %v", got)
	}
	select {
	case <-silent.Failed():
		if err := silent.Err(); err == nil || !strings.Contains(err.Error(), `the key "one", which is not configured`) {
			t.Errorf("stopped with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("a replica without the key goes on")
	}
	_ = silent.Close() // it has failed
	refused(t, at, under(), `the key "one", which is not configured`)

	// A rolling restart: the next key is used when the last replica has it.
	second := opened(t, at, sqlstore.Config{Keys: []secret.Key{one}})
	if err := second.Beat(t.Context(), "second"); err != nil {
		t.Fatal(err)
	}
	third := open(t, at, sqlstore.Config{Keys: []secret.Key{two, one}})
	if err := third.Beat(t.Context(), "third"); err != nil {
		t.Fatal(err)
	}
	webhook(t, third, "a", "y")
	readable(t, second, "a", "x", "y")
	if err := third.EncryptionPass(t.Context()); err == nil || !strings.Contains(err.Error(), `"two" is not used yet, because these servers with the same store do not have it: second`) {
		t.Errorf("a pass beside a replica without the next key: %v", err)
	}
	// One that has the keys in the other order reads both, and neither encrypts again what the other wrote.
	fourth := opened(t, at, sqlstore.Config{Keys: []secret.Key{one, two}})
	if err := fourth.Beat(t.Context(), "fourth"); err != nil {
		t.Fatal(err)
	}
	closed(t, second)
	for range 4 {
		if err := third.EncryptionPass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := fourth.EncryptionPass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	webhook(t, third, "a", "z")
	readable(t, fourth, "a", "x", "y", "z")
	if got := fourth.SealedUnder(t.Context(), t); !maps.Equal(got, map[string]int{"one": 3, "two": 1}) {
		t.Errorf("encrypted under %v", got)
	}
	if got := third.Registered(t.Context(), t); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("registered: %v", got)
	}
	closed(t, fourth)
	if err := third.EncryptionPass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := third.SealedUnder(t.Context(), t); !maps.Equal(got, map[string]int{"two": 4}) {
		t.Errorf("encrypted under %v", got)
	}
	readable(t, third, "a", "x", "y", "z")
}

// TestEncryption_WhileWebhooksChange: what is registered while secrets are encrypted again is not lost.
func TestEncryption_WhileWebhooksChange(t *testing.T) {
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			at := url(t)
			s := opened(t, at, under(keyOf("one", 1)))
			create(t, s, "a", "b", "c", "d")
			for _, task := range []string{"a", "b", "c", "d"} {
				for i := range 8 {
					webhook(t, s, task, fmt.Sprint("old-", i))
				}
			}
			closed(t, s)
			s = open(t, at, under(keyOf("two", 2), keyOf("one", 1)))
			var writers sync.WaitGroup
			for _, task := range []string{"a", "b", "c", "d"} {
				writers.Go(func() {
					for i := range 40 {
						webhook(t, s, task, fmt.Sprint("old-", i%8))
					}
					if err := s.DeletePush(t.Context(), key(task), "old-7"); err != nil {
						t.Error(err)
					}
				})
			}
			writers.Go(func() {
				for range 20 {
					if err := s.EncryptionPass(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
			writers.Wait()
			encrypted(t, s, "two", 28)
			for _, task := range []string{"a", "b", "c", "d"} {
				readable(t, s, task, "old-0", "old-3", "old-6")
			}
		})
	}
}

// TestT_42_StoredSecretsUnderAConfiguredKey: neither secrets nor the keys are in the files of a store, in
// clear or in base64.
func TestT_42_StoredSecretsUnderAConfiguredKey(t *testing.T) {
	url := sqliteURL(t)
	one := keyOf("one", 'k')
	s := opened(t, url, under(one))
	create(t, s, "a")
	webhook(t, s, "a", "x")
	encrypted(t, s, "one", 1)
	search := func() {
		t.Helper()
		files, err := filepath.Glob(strings.TrimPrefix(url, "sqlite:") + "*")
		if err != nil || len(files) < 2 {
			t.Fatal(files, err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, canary := range []string{"canary", strings.Repeat("k", 32), one.Value.Reveal()} {
				if strings.Contains(string(b), canary) {
					t.Errorf("%s has %q", f, canary)
				}
			}
		}
	}
	search()
	closed(t, s)
	search()
}

// TestSQLite_T_48_FilesAreForTheirUser: nobody else on the machine can read a store, nor a copy of one,
// whatever the mask of the process is.
func TestSQLite_T_48_FilesAreForTheirUser(t *testing.T) {
	defer syscallUmask(t, 0)()
	dir := t.TempDir()
	private := func(root string, least int) {
		t.Helper()
		n := 0
		err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			n++
			if info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has the mode %v", path, info.Mode())
			}
			return nil
		})
		if err != nil || n < least {
			t.Errorf("%s: %d files, %v", root, n, err)
		}
	}
	one, two := filepath.Join(dir, "new", "deep", "one.db"), filepath.Join(dir, "other", "two.db")
	s := opened(t, "sqlite:"+one, sqlstore.Config{})
	create(t, s, "a")
	private(filepath.Join(dir, "new"), 5) // the folders, the file, its log, its lock
	closed(t, s)
	from := opened(t, "sqlite:"+one, sqlstore.Config{Sealed: true})
	to := opened(t, "sqlite:"+two, sqlstore.Config{Sealed: true})
	if _, err := sqlstore.Copy(t.Context(), from, to); err != nil {
		t.Fatal(err)
	}
	private(filepath.Join(dir, "other"), 3)
	closed(t, from)
	closed(t, to)
	private(filepath.Join(dir, "other"), 2)
	private(filepath.Join(dir, "new"), 3)
}

// TestEncryption_AnotherValue: a server whose key has the id of a key that other servers wait to use, and
// another value, is refused, and the others go on. A server that finds another value registered at the
// last moment does not use its own.
func TestEncryption_AnotherValue(t *testing.T) {
	at := pgtest.URL(t)
	a, b := keyOf("a", 1), keyOf("b", 2)
	first := opened(t, at, lasting(a))
	if err := first.Beat(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	create(t, first, "a")
	webhook(t, first, "a", "x")
	waiting := open(t, at, lasting(b, a))
	if err := waiting.Beat(t.Context(), "waiting"); err != nil {
		t.Fatal(err)
	}
	refused(t, at, lasting(keyOf("b", 3), a), `the encryption key "b" has another value on the server "waiting"`)
	closed(t, first)
	if err := waiting.EncryptionPass(t.Context()); err != nil {
		t.Fatal(err)
	}
	encrypted(t, waiting, "b", 1)
	readable(t, waiting, "a", "x")

	at = pgtest.URL(t)
	old := opened(t, at, lasting())
	if err := old.Beat(t.Context(), "old"); err != nil {
		t.Fatal(err)
	}
	late := opened(t, at, lasting(keyOf("b", 3)))
	defer func() { _ = late.Close() }() // it may have failed
	closed(t, old)
	// Now the background work of late and a new server both register a value. One of them has it.
	create(t, late, "a")
	const refusal = `the encryption key "b" does not have the value that encrypted the store`
	soon, err := sqlstore.Open(t.Context(), at, lasting(b))
	switch lost := late.AdoptKey(t.Context()); {
	case err == nil && (lost == nil || !strings.Contains(lost.Error(), refusal)):
		t.Errorf("both values are used, and the later server gets %v", lost)
	case err != nil && (lost != nil || !strings.Contains(err.Error(), refusal)):
		t.Errorf("the new server is refused with %v, and the other gets %v", err, lost)
	}
	if soon != nil {
		closed(t, soon)
	}
}

// lasting is like under, for replicas whose lease does not end during a test.
func lasting(keys ...secret.Key) sqlstore.Config {
	c := under(keys...)
	c.Lease = time.Hour
	return c
}
