//go:build linux

// Package soak runs the real server as a process of its own under steady mixed load, and looks at
// what it holds: memory, goroutines, file descriptors and the size of its database must not grow.
//
//	SOAK_TIME  how long each server is under load; default 20s, make soak sets 10m
package soak

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentteams/team-server/internal/testkit/child"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/tests/rig"
)

func TestMain(m *testing.M) { pgtest.Main(closing{m}) }

// closing closes idle connections of the default HTTP client before the check for leaks.
type closing struct{ *testing.M }

func (c closing) Run() int {
	code := c.M.Run()
	http.DefaultClient.CloseIdleConnections()
	return code
}

const (
	timeVariable = "SOAK_TIME"
	patience     = 45 * time.Second // how long the server may take to come to rest
)

// soakTime returns how long the load lasts.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv(timeVariable)
	if text == "" {
		return 20 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 5*time.Second || d > 24*time.Hour {
		t.Fatalf("%s: %q must be a duration from 5s to 24h, such as 10m", timeVariable, text)
	}
	return d
}

// TestP18_Soak puts a server on SQLite and one on PostgreSQL under load.
func TestP18_Soak(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute; run without -short")
	}
	program := child.Build(t, "../..", "./cmd/team-server")
	for _, at := range []struct {
		name  string
		place func(testing.TB) rig.Place
		size  func(testing.TB, string) float64
	}{{"sqlite", rig.SQLite, fileSize}, {"postgres", rig.PostgreSQL, schemaSize}} {
		t.Run(at.name, func(t *testing.T) {
			t.Parallel() // both wait most of the time
			soak(t, program, at.place(t).URL, at.size)
		})
	}
}

const configuration = `version: v1
agents:
  echo: {description: Echoes., scripted: {steps: [{chunks: 4}, {echo: true}]}}
  slow: {description: Echoes after some time., scripted: {steps: [{progress: Working.}, {delay_ms: 300}, {echo: true}]}}
  patient: {description: Never gets done., scripted: {steps: [{progress: Waiting.}, {delay_ms: 600000}, {text: Too late.}]}}
  curious: {description: Asks., scripted: {steps: [{ask: "Which city?"}, {text: "{{input}} in {{answer}}"}]}}
  faulty: {description: Fails., scripted: {steps: [{fail: 1000}, {text: Never.}]}}
teams:
  relay: {description: Has the echo say it., workflow: {steps: [{id: say, agent: echo}]}}
  desk: {description: Asks first., workflow: {steps: [{id: ask, agent: curious}]}}
  bureau: {description: Waits., workflow: {steps: [{id: wait, agent: patient}]}}
  tardy: {description: Takes its time., workflow: {steps: [{id: wait, agent: slow}]}}
  press: {description: Fails., limits: {retry: {attempts: 2}}, workflow: {steps: [{id: fail, agent: faulty}]}}
server:
  default_agent: relay
  metrics: %s
  retention: 20s
  deduplicate: 1m
  egress: {allow: [127.0.0.0/8]}
`

// soak runs a server, its load and its measurements.
func soak(t *testing.T, program, url string, size func(testing.TB, string) float64) {
	length := soakTime(t)
	metrics := "127.0.0.1:" + child.FreePort(t)
	file := filepath.Join(t.TempDir(), "team.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, configuration, metrics), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), program, "serve", "-c", file, "--http=127.0.0.1:0", "--grpc=127.0.0.1:0", "--log-level=error", "--store="+url)
	cmd.Env = append(os.Environ(), "GOGC=50") // more collections, so that the least heap of a window is soon after one
	s, err := child.Serve(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		s.End(syscall.SIGTERM)
		if log := s.Log(); strings.Contains(log, "panic") || t.Failed() {
			t.Errorf("the server said\n%s", log)
		}
	}()
	var web, grpc string
	if _, err := fmt.Sscanf(s.Ready, "http=%s grpc=%s", &web, &grpc); err != nil {
		t.Fatalf("%q: %v", s.Ready, err)
	}
	m := meter{url: "http://" + metrics + "/metrics", size: func() float64 { return size(t, url) }}
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) // 200
	defer hook.Close()

	// A first second of load opens connections and pools, and fills caches.
	target := rig.Target{HTTP: "http://" + web, GRPC: grpc}
	newLoad(t, target, hook.URL).run(time.Second)
	rest := m.settled(t, sample{goroutines: 1 << 20, files: 1 << 20})
	l := newLoad(t, target, hook.URL)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.run(length)
	}()
	windows := m.watch(t, length, done)
	<-done
	end := m.settled(t, sample{goroutines: rest.goroutines + 20, files: rest.files + 20})
	report(t, windows, rest, end, l.counts())
	for _, f := range faults(windows, boundsFor(length)) {
		t.Error(f)
	}
	l.check()
}

// fileSize returns the size of a SQLite database with its log.
func fileSize(_ testing.TB, url string) (size float64) {
	for _, suffix := range []string{"", "-wal"} {
		if info, err := os.Stat(strings.TrimPrefix(url, "sqlite:") + suffix); err == nil {
			size += float64(info.Size())
		}
	}
	return size
}

// schemaSize returns the size of the tables and indexes of a schema.
func schemaSize(t testing.TB, url string) float64 {
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Errorf("the size of the schema: %v", err)
		return 0
	}
	defer conn.Close(context.Background())
	var size int64
	const query = `SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace`
	if err := conn.QueryRow(t.Context(), query).Scan(&size); err != nil {
		t.Errorf("the size of the schema: %v", err)
	}
	return float64(size)
}
