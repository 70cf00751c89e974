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

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/secret"
)

// keyOf returns an encryption key whose bytes are all the same.
func keyOf(id string, b byte) secret.Key {
	return secret.Key{ID: id, Value: secret.New(base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(b)), 32))))}
}

// under returns a configuration with encryption keys.
func under(keys ...secret.Key) sqlstore.Config { return sqlstore.Config{Keys: keys} }

// webhook registers a webhook whose token is its id.
func webhook(t testing.TB, s *sqlstore.Store, task, id string) {
	t.Helper()
	c := &a2av1.TaskPushNotificationConfig{Id: id, Url: "https://example.com/" + id, Token: "canary-" + id}
	if err := s.PutPush(context.Background(), runs.Push{Task: key(task), Config: c}); err != nil {
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

// encrypted encrypts all secrets of a store again, and fails the test unless they, and the key of its page tokens, are
// encrypted under one key then, and no other one is registered.
func encrypted(t testing.TB, s *sqlstore.Store, key string, webhooks int) {
	t.Helper()
	if _, err := s.Reencrypt(context.Background()); err != nil {
		t.Fatal(err)
	}
	got, registered := s.SealedUnder(context.Background(), t), s.Registered(context.Background(), t)
	if !maps.Equal(got, map[string]int{key: webhooks + 1}) || !slices.Equal(registered, []string{key}) {
		t.Errorf("encrypted under %v, registered %v; want %d webhooks under %q", got, registered, webhooks, key)
	}
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

// tidied opens a store that may be damaged, and closes it at the end of the test, if the test has not.
func tidied(t testing.TB, url string, cfg sqlstore.Config) *sqlstore.Store {
	t.Helper()
	s := opened(t, url, cfg)
	t.Cleanup(func() { _ = s.Close() })
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
			page, err := s.List(t.Context(), me, runs.Filter{PageSize: 1})
			if err != nil || page.NextToken == "" {
				t.Fatal(page, err)
			}
			next := runs.Filter{PageSize: 1, PageToken: page.NextToken}
			closed(t, s)

			s = opened(t, at, under(one))
			readable(t, s, "a", "x", "y")
			webhook(t, s, "a", "z")
			if got := s.SealedUnder(t.Context(), t); !maps.Equal(got, map[string]int{"": 3, "one": 1}) {
				t.Errorf("encrypted under %v", got)
			}
			encrypted(t, s, "one", 3)
			readable(t, s, "a", "x", "y", "z")
			closed(t, s)

			refused(t, at, under(), `the key "one", which is not configured`, `server: {encryption: {keys: [{id: "one", value:`, "team-server store forget-secrets --key one")
			refused(t, at, under(two), `the key "one", which is not configured`)
			refused(t, at, under(keyOf("one", 3)), `the encryption key "one" does not have the value that encrypted the store`)
			refused(t, at, under(keyOf("one", 3), one), `encryption key "one"`, "is given twice")
			refused(t, at, under(secret.Key{ID: "one", Value: secret.New("short")}), `encryption key "one": value must be 32 bytes`)

			s = opened(t, at, under(two, one))
			readable(t, s, "a", "x", "y", "z")
			encrypted(t, s, "two", 3)
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

// TestEncryption_NewStore: a store that begins with a key has nothing that the key has not encrypted, and its page tokens
// are valid after a restart.
func TestEncryption_NewStore(t *testing.T) {
	list := urls(t)
	list["SQLite"] = func(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "new.db") } // that of urls has begun without a key
	for name, url := range list {
		t.Run(name, func(t *testing.T) {
			at, cfg := url(t), under(keyOf("one", 1))
			s := opened(t, at, cfg)
			create(t, s, "a", "b")
			page, err := s.List(t.Context(), me, runs.Filter{PageSize: 1})
			if err != nil || page.NextToken == "" {
				t.Fatal(page, err)
			}
			if got := s.SealedUnder(t.Context(), t); !maps.Equal(got, map[string]int{"one": 1}) {
				t.Errorf("encrypted under %v", got)
			}
			if n, err := s.Reencrypt(t.Context()); err != nil || n != 0 {
				t.Errorf("%d secrets were encrypted again, %v", n, err)
			}
			closed(t, s)
			s = open(t, at, cfg)
			if page, err := s.List(t.Context(), me, runs.Filter{PageSize: 1, PageToken: page.NextToken}); err != nil || len(page.Tasks) != 1 {
				t.Errorf("the next page: %v, %v", page, err)
			}
		})
	}
}

// TestEncryption_WrittenUnderARemovedKey: a server that still encrypted with the old key, after all was encrypted again, has
// left secrets under it. They are not passed over, as if all were under the new one.
func TestEncryption_WrittenUnderARemovedKey(t *testing.T) {
	one, two := keyOf("one", 1), keyOf("two", 2)
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			at := url(t)
			s := opened(t, at, under(two, one))
			create(t, s, "a")
			encrypted(t, s, "two", 0)
			closed(t, s)
			s = opened(t, at, under(one, two))
			webhook(t, s, "a", "x")
			s.Exec(t.Context(), t, `DELETE FROM setting WHERE name = 'encryption_key:one'`) // the others do not know of it
			closed(t, s)
			s = opened(t, at, under(two))
			if _, err := s.Reencrypt(t.Context()); err == nil || !strings.Contains(err.Error(), `the key "one", which is not configured`) {
				t.Errorf("Reencrypt = %v", err)
			}
			closed(t, s)
			s = open(t, at, under(two, one))
			encrypted(t, s, "two", 1)
			readable(t, s, "a", "x")
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
			if _, err := s.List(t.Context(), me, runs.Filter{PageSize: 1}); err != nil {
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

// TestEncryption_TwoDeployments: replicas go on while a key is replaced in two deployments: the first adds the next key
// behind the present one, the second puts it in front. A replica without a key that others use stops.
func TestEncryption_TwoDeployments(t *testing.T) {
	one, two := keyOf("one", 1), keyOf("two", 2)
	at := pgtest.URL(t)
	old := opened(t, at, under(one))
	create(t, old, "a")
	webhook(t, old, "a", "x")
	added := opened(t, at, under(one, two))
	webhook(t, added, "a", "y")
	readable(t, old, "a", "x", "y")
	without := opened(t, at, under(one))
	closed(t, old)
	changed := opened(t, at, under(two, one))
	webhook(t, changed, "a", "z")
	readable(t, added, "a", "x", "y", "z")
	select {
	case <-without.Failed():
		if err := without.Err(); err == nil || !strings.Contains(err.Error(), `the key "two", which is not configured`) {
			t.Errorf("stopped with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("a replica without the key goes on")
	}
	_ = without.Close() // it has failed
	closed(t, added)
	encrypted(t, changed, "two", 3)
	closed(t, changed)
	refused(t, at, under(two, keyOf("two", 3)), `is given twice`)
	refused(t, at, under(keyOf("two", 3)), `the encryption key "two" does not have the value that encrypted the store`)
	readable(t, open(t, at, under(two)), "a", "x", "y", "z")
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
					if _, err := s.Reencrypt(t.Context()); err != nil {
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
