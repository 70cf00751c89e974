package server_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// serving returns a server that serves until t ends.
func serving(t *testing.T, config server.Config) *server.TeamServer {
	t.Helper()
	s, err := server.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestReload: a Go program changes keys and other settings of a server that runs. A configuration that is wrong
// changes nothing, and the error says what is wrong.
func TestReload(t *testing.T) {
	config := server.Config{Agent: upper(), Settings: &teamv1.ServerSettings{Auth: rig.Auth(rig.Key("acme", "ann")), Grpc: "127.0.0.1:0", Http: "127.0.0.1:0"}}
	s := serving(t, config)
	target := rig.Target{GRPC: s.Addrs().GRPC, HTTP: s.Addrs().URL}
	ann, bob := rig.Clients(t, target.As("acme", "ann")), rig.Clients(t, target.As("acme", "bob"))
	accepts := func(c rig.Client) bool {
		t.Helper()
		_, err := c.List(t.Context(), &a2av1.ListTasksRequest{})
		if err != nil && rig.Fault(err).Reason != "UNAUTHENTICATED" {
			t.Error(err)
		}
		return err == nil
	}
	check := func(which string, annMay, bobMay bool) {
		t.Helper()
		for i := range ann {
			if accepts(ann[i]) != annMay || accepts(bob[i]) != bobMay {
				t.Errorf("%s over %s: ann may call: %t, bob: %t", which, ann[i].Binding(), !annMay, !bobMay)
			}
		}
	}
	check("at first", true, false)
	for want, change := range map[string]func(*teamv1.ServerSettings){
		"neither begin nor cease to authenticate": func(s *teamv1.ServerSettings) { s.Auth = nil },
		"server.Config.Settings: auth.api_keys[0].sha256: sha256 must be the key's SHA-256": func(s *teamv1.ServerSettings) {
			s.Auth = rig.Auth(&teamv1.ApiKey{Name: "bob", Sha256: "x"})
		},
		"server.Config.Settings: card.interfaces: ":  func(s *teamv1.ServerSettings) { s.Card = &teamv1.CardSettings{Interfaces: []string{"SOAP"}} },
		"server.Config.Settings: egress.allow: ":     func(s *teamv1.ServerSettings) { s.Egress = &teamv1.EgressSettings{Allow: []string{"10.0.0.1/8"}} },
		`server.Config.Settings: accounts["acme"]: `: func(s *teamv1.ServerSettings) { s.Accounts = map[string]*teamv1.AccountLimits{"acme": {}} },
		"server.Config.Settings: drain_delay: ":      func(s *teamv1.ServerSettings) { s.DrainDelay = durationpb.New(time.Hour) },
		"reading the key \"one\" of signing: open none.pem": func(s *teamv1.ServerSettings) {
			s.Signing = &teamv1.SigningSettings{Keys: []*teamv1.SigningKey{{Kid: "one", File: "none.pem"}}}
		},
	} {
		wrong := server.Config{Settings: proto.CloneOf(config.Settings)}
		wrong.Settings.Auth = rig.Auth(rig.Key("acme", "bob"))
		change(wrong.Settings)
		if err := s.Reload(wrong); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	check("after wrong configurations", true, false)
	config.Settings.Auth = rig.Auth(rig.Key("acme", "bob"))
	if err := s.Reload(config); err != nil {
		t.Fatal(err)
	}
	check("after the reload", false, true)
}

// TestReloadsAtTheSameTime: of reloads at the same time one is the last, and all of its settings are in effect.
func TestReloadsAtTheSameTime(t *testing.T) {
	config := func(who string) server.Config {
		return server.Config{Agent: upper(), Settings: &teamv1.ServerSettings{Auth: rig.Auth(rig.Key("acme", who)), Grpc: "127.0.0.1:0", Http: "127.0.0.1:0", PublicUrl: "https://" + who + ".example"}}
	}
	s := serving(t, config("ann"))
	target := rig.Target{GRPC: s.Addrs().GRPC, HTTP: s.Addrs().URL}
	ann, bob := rig.Clients(t, target.As("acme", "ann"))[1], rig.Clients(t, target.As("acme", "bob"))[1]
	for range 20 {
		var reloads sync.WaitGroup
		for _, who := range []string{"ann", "bob", "ann", "bob"} {
			reloads.Go(func() {
				if err := s.Reload(config(who)); err != nil {
					t.Error(err)
				}
			})
		}
		reloads.Wait()
		_, annErr := ann.List(t.Context(), &a2av1.ListTasksRequest{})
		_, bobErr := bob.List(t.Context(), &a2av1.ListTasksRequest{})
		resp, err := http.Get(s.Addrs().URL + "/.well-known/agent-card.json") //nolint:noctx // a test
		if err != nil {
			t.Fatal(err)
		}
		card, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if of := strings.Contains(string(card), "https://ann.example"); (annErr == nil) != of || (bobErr == nil) == of {
			t.Fatalf("the card is that of ann: %t, but ann: %v, bob: %v", of, annErr, bobErr)
		}
	}
}
