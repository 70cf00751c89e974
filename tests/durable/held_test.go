//go:build linux

package durable

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/agentteams/team-server/tests/rig"
)

// TestT_31_MemoryOfTheProcess has callers hold 200 bodies of 4 MiB but for their last byte, and 128 streams
// of health without a key. It looks at the memory of the process, which has what its heap does not show.
func TestT_31_MemoryOfTheProcess(t *testing.T) {
	for _, c := range []struct {
		name, header string
		most         int64 // MiB
	}{
		{"without a key", "", 64},
		{"with a key", "Authorization: Bearer acme/ann\r\n", 256}, // 32 MiB of bodies, and the buffers that they have outgrown
	} {
		t.Run(c.name, func(t *testing.T) {
			r := command{config: keyed(t, ""), store: sqlite(t)}.run(t)
			other := newCallers(t, r.target, "echo", "other/bob", 1)
			for range 20 {
				if err := other.call(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			before := r.rss(t)
			holdHealth(t, r.target, 128)
			refused := holdBodies(t, r.target, 200, 4<<20, c.header)
			grown := r.rss(t) - before
			if err := other.call(t.Context()); err != nil {
				t.Errorf("a call of another account: %v", err)
			}
			grown = max(grown, r.rss(t)-before)
			t.Logf("200 bodies and 128 streams: RSS %d MiB before, %d MiB more while they are held; %d bodies were refused", before>>20, grown>>20, refused)
			if grown > c.most<<20 {
				t.Errorf("the process has grown by %d MiB, more than %d", grown>>20, c.most)
			}
		})
	}
}

// holdHealth opens streams of health, and returns when each has its first answer.
func holdHealth(t *testing.T, at rig.Target, n int) {
	t.Helper()
	conns := newCallers(t, at, "", "", 2).conns
	for i := range n {
		stream, err := healthpb.NewHealthClient(conns[i%len(conns)]).Watch(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
}

// holdBodies sends requests whose last byte is missing, as far as the server takes them, and returns how
// many it has refused so far.
func holdBodies(t *testing.T, at rig.Target, n, size int, header string) (refused int) {
	t.Helper()
	zeros := make([]byte, size-1)
	var sending sync.WaitGroup
	var mu sync.Mutex
	for range n {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(at.HTTP, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		sending.Go(func() {
			_, err := fmt.Fprintf(conn, "POST /echo/message:send HTTP/1.1\r\nHost: x\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", header, size)
			if err == nil {
				_, err = conn.Write(zeros)
			}
			if err != nil {
				mu.Lock()
				refused++
				mu.Unlock()
			}
		})
	}
	done := make(chan struct{})
	go func() { sending.Wait(); close(done) }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal("the server neither takes nor refuses the bodies")
	}
	return refused
}
