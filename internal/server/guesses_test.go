package server_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/tests/rig"
)

// TestA_21_UnknownKeysAreSlowedDown: a client that guesses keys must soon wait, over each
// binding, and the log shows it. Callers with a key that was valid before are not affected,
// and others are accepted again after a while.
func TestA_21_UnknownKeysAreSlowedDown(t *testing.T) {
	const guesses = 1200
	core, log := observer.New(zap.WarnLevel)
	by, err := auth.New(auth.Config{Accept: &teamv1.AuthConfig{ApiKeys: []*teamv1.ApiKey{key("ann", "", "secret-a"), key("bob", "", "secret-b")}}, Log: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	target, stop := serve(t, server.Config{Handler: &probe{get: task}, Auth: by})
	get := func(c rig.Client) *rig.Error {
		_, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: "t1"})
		return rig.Fault(err)
	}
	with := func(key string) []rig.Client {
		to := target
		to.Key = key
		return rig.Clients(t, to)
	}
	ann := with("secret-a")
	for _, c := range ann {
		if f := get(c); f != nil {
			t.Fatal(f)
		}
	}
	began := time.Now()
	unknown, refused := 0, 0
	for i := range guesses / 3 {
		for _, c := range with(fmt.Sprint("guess-", i)) {
			switch f := get(c); {
			case f != nil && f.Code == "Unauthenticated":
				unknown++
			case f != nil && f.Code == "ResourceExhausted" && f.Reason == "INSUFFICIENT_RESOURCES":
				if c.Binding() != "grpc" && f.HTTP != http.StatusTooManyRequests {
					t.Errorf("%s: status %d", c.Binding(), f.HTTP)
				}
				refused++
			default:
				t.Fatalf("%s: %+v", c.Binding(), f)
			}
		}
		for _, c := range ann {
			if f := get(c); f != nil {
				t.Fatalf("%s: a key that was right here before: %v", c.Binding(), f)
			}
		}
	}
	// 28 keys come to four seconds of pauses, and each 200 ms one more is looked at.
	if most := 30 + int(time.Since(began)/(200*time.Millisecond)); unknown > most || unknown+refused != guesses {
		t.Errorf("%d keys were looked at in %s, want at most %d", unknown, time.Since(began), most)
	}
	for _, c := range with("secret-b") { // the first one may have to wait
		f := get(c)
		for ; f != nil && f.Code == "ResourceExhausted"; f = get(c) {
		}
		if f != nil {
			t.Errorf("%s: %v", c.Binding(), f)
		}
	}
	stop()
	by.Flush()
	lines := log.FilterMessage("unknown API keys or bad tokens").All()
	if len(lines) < 5 || len(lines) > 9 {
		t.Fatalf("%d lines", len(lines))
	}
	last := lines[len(lines)-1].ContextMap()
	if last["address"] != "127.0.0.1" || last["keys"].(int64) < guesses || last["not_looked_at"].(int64) < int64(refused) {
		t.Error(last)
	}
}

// TestA_21_UnknownKeysBehindAProxy: a trusted proxy names the address of its caller; the
// same header from other clients is ignored.
func TestA_21_UnknownKeysBehindAProxy(t *testing.T) {
	config := server.Config{Handler: &probe{get: task}, Auth: byKeys(key("ann", "", "secret"))}
	config.Settings = settings.Of(&teamv1.ServerSettings{PublicUrl: "https://team.example", TrustedProxies: []string{"127.0.0.0/8", "10.0.0.0/8"}})
	behind := start(t, config)
	config.Settings = settings.Of(&teamv1.ServerSettings{PublicUrl: "https://team.example"})
	alone := start(t, config)
	for _, binding := range []string{"grpc", "jsonrpc", "rest"} {
		t.Run(binding, func(t *testing.T) {
			try := func(target rig.Target, key, from string) error {
				target.Key, target.Headers = key, map[string]string{"x-forwarded-for": from}
				for _, c := range rig.Clients(t, target) {
					if c.Binding() == binding {
						_, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: "t1"})
						return err
					}
				}
				return errors.New("there is no client of " + binding)
			}
			looked := func(target rig.Target, from string) int { // keys that are looked at before one is not
				for n := range 100 {
					if f := rig.Fault(try(target, "guess", from)); f != nil && f.Code == "ResourceExhausted" {
						return n
					}
				}
				t.Fatalf("%s is not slowed down", from)
				return 0
			}
			looked(behind, "203.0.113.7, 10.1.1.1")
			if f := rig.Fault(try(behind, "guess", "203.0.113.8")); f == nil || f.Code != "Unauthenticated" {
				t.Errorf("another address: %v", f)
			}
			if n := looked(behind, "203.0.113.9, 203.0.113.7"); n > 10 {
				t.Errorf("an address that made up where it comes from begins anew: %d keys", n)
			}
			if err := try(behind, "secret", "203.0.113.8"); err != nil {
				t.Errorf("a right key from another address: %v", err)
			}
			looked(alone, "203.0.113.1")
			if n := looked(alone, "203.0.113.2"); n > 10 {
				t.Errorf("a header from anybody: %d keys", n)
			}
		})
	}
}
