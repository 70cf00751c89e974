package server_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/tests/rig"
)

// TestA_19_HealthComesFirst: a server that stops says that it should get no calls
// while it still answers those that come.
func TestA_19_HealthComesFirst(t *testing.T) {
	target, stop := serve(t, server.Config{Handler: &probe{get: task}, Settings: settings.Of(&teamv1.ServerSettings{DrainDelay: durationpb.New(2 * time.Second)}), HealthInterval: time.Millisecond})
	clients := rig.Clients(t, target)
	watch, err := healthpb.NewHealthClient(clients[0].(*rig.GRPC).Conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	next := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if resp, err := watch.Recv(); err != nil || resp.GetStatus() != want {
			t.Fatalf("%v %v, want %v", resp, err, want)
		}
	}
	next(healthpb.HealthCheckResponse_SERVING)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	next(healthpb.HealthCheckResponse_NOT_SERVING)
	if resp, _ := request(t, http.MethodGet, target.HTTP+"/readyz", "", nil); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %d", resp.StatusCode)
	}
	if resp, _ := request(t, http.MethodGet, target.HTTP+"/healthz", "", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("/healthz: %d", resp.StatusCode)
	}
	for _, c := range clients {
		if _, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: "t1"}); err != nil {
			t.Errorf("%s is not answered any more: %v", c.Binding(), err)
		}
	}
	<-stopped
	for _, c := range clients[1:] {
		if _, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: "t1"}); err == nil {
			t.Errorf("%s is answered", c.Binding())
		}
	}
}

// Frames of HTTP/2.
const (
	frameSettings = 4
	framePing     = 6
	frameGoAway   = 7

	enhanceYourCalm = 11
)

// TestA_20_TooManyPings: a gRPC client that pings all the time is sent away.
func TestA_20_TooManyPings(t *testing.T) {
	target := start(t, server.Config{Handler: &probe{}})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", target.GRPC)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	frame := func(kind byte, payload []byte) []byte {
		head := []byte{0, 0, byte(len(payload)), kind, 0, 0, 0, 0, 0}
		return append(head, payload...)
	}
	out := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(frameSettings, nil)...)
	for range 10 {
		out = append(out, frame(framePing, make([]byte, 8))...)
	}
	if _, err := conn.Write(out); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(in, head); err != nil {
			t.Fatalf("it ends without a reason: %v", err)
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(in, payload); err != nil {
			t.Fatal(err)
		}
		if head[3] == frameGoAway {
			if code := binary.BigEndian.Uint32(payload[4:8]); code != enhanceYourCalm {
				t.Errorf("code %d: %s", code, payload[8:])
			}
			return
		}
	}
}

// TestA_19_TheDrainDelayEnds: closing the listeners, or a store where nothing can
// be answered any more, does not wait for the delay.
func TestA_19_TheDrainDelayEnds(t *testing.T) {
	for name, end := range map[string]func(server.Listeners, chan struct{}){
		"the listeners are closed": func(l server.Listeners, _ chan struct{}) { _, _ = l.HTTP.Close(), l.GRPC.Close() },
		"the store has failed":     func(_ server.Listeners, failed chan struct{}) { close(failed) },
	} {
		t.Run(name, func(t *testing.T) {
			failed := make(chan struct{})
			s, err := server.New(server.Config{Handler: &probe{get: task}, Settings: settings.Of(&teamv1.ServerSettings{DrainDelay: durationpb.New(time.Hour)}), Hurry: failed})
			if err != nil {
				t.Fatal(err)
			}
			l := server.Listeners{HTTP: local(t), GRPC: local(t)}
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- s.Serve(ctx, l) }()
			until(t, "the server is ready", func() bool { return s.Ready() == nil })
			cancel()
			until(t, "the server is not ready", func() bool { return s.Ready() != nil })
			end(l, failed)
			select {
			case err := <-served:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the delay goes on")
			}
		})
	}
}

func local(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// until waits for something that another goroutine brings about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}
