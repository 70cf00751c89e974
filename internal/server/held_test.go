package server_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/cardsign"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/server/service"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/tests/rig"
)

// locked is a server with a page, cards and keys: what it does for callers without a
// key is what the tests below look at.
func locked() server.Config {
	card := func(context.Context, string) (*a2av1.AgentCard, error) { return &a2av1.AgentCard{Name: "a"}, nil }
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	signer, err := cardsign.NewSigner([]cardsign.Key{{ID: "one", Private: private}}, "")
	if err != nil {
		panic(err)
	}
	live := settings.Of(nil)
	live.Store(&settings.Snapshot{ServerSettings: live.Load().ServerSettings, Signer: signer})
	return server.Config{
		Handler: &probe{card: card}, Monitor: struct{ service.Monitor }{}, Settings: live,
		Auth: byKeys(key("ann", "", "secret")),
	}
}

// begun sends a request whose body never ends, and returns the status of the answer.
func begun(t *testing.T, address, method, path string) int {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n", method, path)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Errorf("%s %s: no answer while the body goes on: %v", method, path, err)
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestA_21_OpenPathsAreExact: only exact paths of page files, cards and probes are served
// without a key, only to GET and HEAD, and without waiting for a body. Other requests are
// rejected before their body is read.
func TestA_21_OpenPathsAreExact(t *testing.T) {
	target := start(t, locked())
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"POST", "/assets/message:send", 401},
		{"POST", "/docs/message:stream", 401},
		{"POST", "/docs/rpc", 401},
		{"POST", "/assets/rpc", 401},
		{"GET", "/assets/tasks", 401},
		{"GET", "/docs/extendedAgentCard", 401},
		{"POST", "/assets/tasks/x:cancel", 401},
		{"POST", "/", 401},
		{"POST", "/healthz", 401},
		{"PUT", "/assets/monitor.js", 401},
		{"POST", "/.well-known/agent-card.json", 401},
		{"GET", "/a/b/.well-known/agent-card.json", 401},
		{"GET", "/a/a/.well-known/agent-card.json", 200}, // the agent is named duplicateParameter
		{"GET", "/a%2Fb/.well-known/agent-card.json", 401},
		{"GET", "/assets/nothing.js", 401},
		{"GET", "/docs/nothing.js", 401},
		{"POST", "/team/v1/monitor/sign-in", 401},
		{"GET", "/team/v1/monitor/sign-in/x", 401},
		{"GET", "/team/v1/monitor/sign-in", 200},
		{"GET", "/", 200},
		{"GET", "/assets/monitor.js", 200},
		{"HEAD", "/assets/monitor.css", 200},
		{"GET", "/docs", 200},
		{"GET", "/docs/index.html", 200},
		{"GET", "/openapi.json", 200},
		{"GET", "/healthz", 200},
		{"GET", "/readyz", 200},
		{"GET", "/.well-known/jwks.json", 200},
		{"GET", "/.well-known/agent-card.json", 200},
		{"GET", "/a/.well-known/agent-card.json", 200},
		{"GET", "/a/.well-known/agent.json", 200},
		{"OPTIONS", "/a/.well-known/agent-card.json", 204},
		{"OPTIONS", "/.well-known/jwks.json", 204},
	} {
		if got := begun(t, target.HTTP, c.method, c.path); got != c.want {
			t.Errorf("%s %s: status %d, want %d", c.method, c.path, got, c.want)
		}
	}
}

// TestA_21_HealthTakesLittle: a request for health or reflection has at most 1 KiB and one
// message, and must arrive in time.
func TestA_21_HealthTakesLittle(t *testing.T) {
	target := start(t, locked())
	g, err := rig.NewGRPC(target)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	client := healthpb.NewHealthClient(g.Conn)
	long := &healthpb.HealthCheckRequest{Service: strings.Repeat("x", 1<<10)}
	refused := func(what string, err error) {
		t.Helper()
		if f := rig.Fault(rig.FromGRPC(err)); f == nil || f.Code != "ResourceExhausted" || f.Reason != "INSUFFICIENT_RESOURCES" || f.Details["max_bytes"] != "1024" {
			t.Errorf("%s: got %+v", what, f)
		}
	}
	_, err = client.Check(t.Context(), long)
	refused("Check", err)
	watch, err := client.Watch(t.Context(), long)
	if err != nil {
		t.Fatal(err)
	}
	_, err = watch.Recv()
	refused("Watch", err)
	if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("an empty request: %v", err)
	}
	two, err := g.Conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, healthpb.Health_Check_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = two.SendMsg(&healthpb.HealthCheckRequest{}), two.SendMsg(&healthpb.HealthCheckRequest{})
	if err := two.RecvMsg(&healthpb.HealthCheckResponse{}); rig.Fault(rig.FromGRPC(err)) == nil {
		t.Error("two messages in a call of one were taken")
	}

	open := start(t, server.Config{Handler: &probe{}})
	r, err := rig.NewGRPC(open)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stream, err := reflectionpb.NewServerReflectionClient(r.Conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&reflectionpb.ServerReflectionRequest{Host: strings.Repeat("x", 1<<20)})
	_, err = stream.Recv()
	refused("reflection", err)
}

// TestA_21_FewAnonymousStreams: calls without a key that stay open have a limit, and give
// their place back.
func TestA_21_FewAnonymousStreams(t *testing.T) {
	target := start(t, locked())
	const most = 128 // of an address
	g, err := rig.NewGRPC(target)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	more, err := rig.NewGRPC(target)
	if err != nil {
		t.Fatal(err)
	}
	defer more.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range most {
		watch, err := healthpb.NewHealthClient(g.Conn).Watch(ctx, &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = watch.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(ctx context.Context) error {
		_, err := healthpb.NewHealthClient(more.Conn).Check(ctx, &healthpb.HealthCheckRequest{})
		return err
	}
	if f := rig.Fault(rig.FromGRPC(check(t.Context()))); f == nil || f.Code != "ResourceExhausted" || f.Details["max_streams"] != "128" || f.Retry <= 0 {
		t.Errorf("one more: %+v", f)
	}
	knows := target
	knows.Key = "secret"
	known, err := rig.NewGRPC(knows)
	if err != nil {
		t.Fatal(err)
	}
	defer known.Close()
	if _, err := healthpb.NewHealthClient(known.Conn).Check(known.Context(t.Context()), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("with a key: %v", err)
	}
	cancel()
	waiting, done := context.WithTimeout(t.Context(), 30*time.Second)
	defer done()
	for check(waiting) != nil { // the server hears of the end of the watches
		if waiting.Err() != nil {
			t.Fatal("no place was given back")
		}
	}
}

// TestA_21_T_31_HeldWithoutAKey: bodies and streams that callers without a key hold open cost
// the server next to nothing.
func TestA_21_T_31_HeldWithoutAKey(t *testing.T) {
	const bodies, streams, size, limit = 200, 128, 4 << 20, 64 << 20
	target := start(t, locked())
	end := make(chan struct{})
	zeros := make([]byte, size)
	var held sync.WaitGroup // until a body is sent but for its last byte, or refused
	var ended sync.WaitGroup
	defer ended.Wait()
	defer close(end)
	before := inUse()
	for i := range bodies {
		held.Add(1)
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(target.HTTP, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		path := []string{"POST /assets/message:send", "POST /docs/rpc", "GET /healthz", "GET /a/.well-known/agent-card.json"}[i%4]
		ended.Go(func() {
			defer conn.Close()
			fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, size)
			_, _ = conn.Write(zeros[1:]) // fails where it is refused
			held.Done()
			<-end
		})
	}
	client := unencrypted(t)
	for i := range streams {
		held.Add(1)
		method := []string{healthpb.Health_Check_FullMethodName, healthpb.Health_Watch_FullMethodName}[i%2]
		b := &endless{left: zeros[1:], end: end}
		b.sent = sync.OnceFunc(held.Done)
		b.head = append([]byte{0}, binary.BigEndian.AppendUint32(nil, size)...)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+target.GRPC+method, b)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
		ended.Go(func() {
			resp, err := client.RoundTrip(req)
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			b.sent()
		})
	}
	held.Wait()
	if grown := inUse() - before; grown > limit {
		t.Errorf("%d bodies and %d streams without a key hold %d MiB", bodies, streams, grown>>20)
	} else {
		t.Logf("%d KiB", grown>>10)
	}
}

// inUse is the memory of this process that is in use, in bytes.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // empties the pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// unencrypted speaks HTTP/2 without TLS.
func unencrypted(t *testing.T) *http.Transport {
	t.Helper()
	tr := &http.Transport{Protocols: &http.Protocols{}}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// endless is a body that stops before its last byte, until the test ends.
type endless struct {
	head, left []byte
	sent       func()
	end        <-chan struct{}
}

func (b *endless) Read(p []byte) (int, error) {
	if len(b.head) > 0 {
		n := copy(p, b.head)
		b.head = b.head[n:]
		return n, nil
	}
	if len(b.left) > 0 {
		n := copy(p, b.left)
		b.left = b.left[n:]
		return n, nil
	}
	b.sent()
	<-b.end
	return 0, io.ErrUnexpectedEOF
}
