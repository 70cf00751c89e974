package server_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/server"
)

// doomed is a store whose readiness and failure the test controls.
type doomed struct {
	*sqlstore.Store
	busy   atomic.Bool
	failed chan struct{}
}

var errDisk = errors.New("the disk is gone")

func (d *doomed) Ready() error {
	if d.busy.Load() {
		return errors.New("no room")
	}
	return nil
}

func (d *doomed) Failed() <-chan struct{} { return d.failed }

func (d *doomed) Err() error {
	select {
	case <-d.failed:
		return errDisk
	default:
		return nil
	}
}

func readiness(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func TestS_49_AStoreThatFailsEndsTheServer(t *testing.T) {
	d := &doomed{Store: memstore.Open(t), failed: make(chan struct{})}
	var notYet atomic.Bool
	core, log := observer.New(zap.InfoLevel)
	s, err := server.New(server.Config{
		Agent: upper(),
		Store: d,
		Log:   zap.New(core),
		Ready: func() error {
			if notYet.Load() {
				return errors.New("not yet")
			}
			return nil
		},
		Settings: &teamv1.ServerSettings{Grpc: "127.0.0.1:0", Http: "127.0.0.1:0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	for readiness(t, s.Addrs().URL) != http.StatusOK && ctx.Err() == nil {
		// it starts
	}
	d.busy.Store(true)
	if got := readiness(t, s.Addrs().URL); got != http.StatusServiceUnavailable {
		t.Errorf("a server whose store takes nothing is %d", got)
	}
	d.busy.Store(false)
	notYet.Store(true)
	if got := readiness(t, s.Addrs().URL); got != http.StatusServiceUnavailable {
		t.Errorf("a server that says it is not ready is %d", got)
	}
	close(d.failed)
	if err := <-done; !errors.Is(err, server.ErrStoreFailed) || !errors.Is(err, errDisk) {
		t.Errorf("Serve: %v", err)
	}
	if stopped := log.FilterMessageSnippet("stopped"); stopped.Len() != 1 || stopped.All()[0].Message != "stopped" {
		t.Errorf("the log has %v", stopped.All())
	}
	if ctx.Err() != nil {
		t.Error("it went on")
	}
}

func TestOpenStoreRefuses(t *testing.T) {
	file := "sqlite:" + filepath.Join(t.TempDir(), "team.db")
	open, err := server.OpenStore(t.Context(), file, server.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := open.Close(); err != nil {
			t.Error(err)
		}
	}()
	for url, says := range map[string]string{
		"team.db":                              "unknown store team.db: a store is memory:",
		"mysql://ann:hush@h/d":                 "unknown store mysql:…: a store is memory:",
		file:                                   "cannot open the store " + file + ": ",
		"postgres://ann:hush@127.0.0.1:1/team": "cannot open the store postgres://ann:xxxxx@127.0.0.1:1/team: ",
		"postgres://ann:hush@h:port/team":      "cannot open the store postgres://…: ",
	} {
		s, err := server.OpenStore(t.Context(), url, server.StoreConfig{})
		if err == nil {
			_ = s.Close()
			t.Errorf("%s is opened", url)
			continue
		}
		if text := err.Error(); !strings.HasPrefix(text, says) || strings.Contains(text, "hush") || strings.Contains(text, "\n") {
			t.Errorf("%s: %v", url, err)
		}
		t.Log(err)
	}
}

func TestOpenStoreInMemory(t *testing.T) {
	s, err := server.OpenStore(t.Context(), "memory:", server.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
