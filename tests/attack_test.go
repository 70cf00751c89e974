package tests

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// honest fails unless calls of account other are answered within a second, over each binding.
func honest(t *testing.T, target rig.Target) {
	t.Helper()
	for _, c := range rig.Clients(t, target.As("other", "bob")) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err := c.Send(ctx, rig.Text("echo", "honest-"+c.Binding()+fmt.Sprint(began.UnixNano()), "hi"))
		cancel()
		if d := time.Since(began); err != nil || d > time.Second {
			t.Errorf("%s: an honest call took %s: %v", c.Binding(), d, err)
		}
	}
}

// connect opens a connection and sends what an attacker sends.
func connect(t *testing.T, address, sends string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, sends); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestT_35_SlowPeers has peers hold connections in each way that costs them nothing: idle, within the
// headers, within the body, as readers that do not read. Honest calls are answered.
func TestT_35_SlowPeers(t *testing.T) {
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, says("echo")), Settings: rig.Keys(twoAccounts...)})
	for range 300 {
		connect(t, target.HTTP, "")
		connect(t, target.GRPC, "")
	}
	for i := range 100 {
		path := []string{"/", "/docs", "/healthz", "/echo/.well-known/agent-card.json", "/rpc"}[i%5]
		connect(t, target.HTTP, "GET "+path+" HTTP/1.1\r\nHost: x\r\nX-Slow: ")
		connect(t, target.HTTP, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\n\r\n{")
		connect(t, target.HTTP, "POST /echo/message:send HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme/ann\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\n\r\n{")
		connect(t, target.HTTP, strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n", 50)) // and reads nothing
		connect(t, target.GRPC, http2.ClientPreface)
	}
	honest(t, target)
}

// framer speaks HTTP/2 over a new connection.
func framer(t *testing.T, address string) (*http2.Framer, net.Conn) {
	t.Helper()
	conn := connect(t, address, http2.ClientPreface)
	f := http2.NewFramer(conn, conn)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return f, conn
}

// TestT_36_RapidReset opens and resets 20,000 calls on one connection. They leave nothing behind.
func TestT_36_RapidReset(t *testing.T) {
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, says("echo")), Settings: rig.Keys(twoAccounts...)})
	honest(t, target)
	f, conn := framer(t, target.GRPC)
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	before := runtime.NumGoroutine()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := range uint32(20_000) {
		block.Reset()
		for _, h := range []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/lf.a2a.v1.A2AService/SendMessage"}, {Name: ":authority", Value: "x"},
			{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}, {Name: "authorization", Value: "Bearer acme/ann"},
		} {
			_ = enc.WriteField(h)
		}
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
			t.Logf("the server ended the connection after %d calls", i)
			break
		}
		if f.WriteRSTStream(2*i+1, http2.ErrCodeCancel) != nil {
			break
		}
	}
	if n := runtime.NumGoroutine() - before; n > 1000 {
		t.Errorf("%d goroutines are left", n)
	}
	honest(t, target)
}

// TestT_36_Pings sends pings without end. The server ends the connection.
func TestT_36_Pings(t *testing.T) {
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, says("echo")), Settings: rig.Keys(twoAccounts...)})
	f, conn := framer(t, target.GRPC)
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	go func() {
		for f.WritePing(false, [8]byte{}) == nil {
		}
	}()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			if errors.Is(err, io.EOF) || strings.Contains(err.Error(), "reset") {
				break
			}
			t.Fatal(err)
		}
		if g, ok := frame.(*http2.GoAwayFrame); ok {
			if g.ErrCode != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("GOAWAY says %v", g.ErrCode)
			}
			break
		}
	}
	honest(t, target)
}

// TestT_38_Compressed sends 256 MiB as a compressed message of some hundred KiB, over gRPC and REST.
func TestT_38_Compressed(t *testing.T) {
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, says("echo")), Settings: rig.Keys(twoAccounts...)})
	var member bytes.Buffer
	z := gzip.NewWriter(&member)
	_, _ = z.Write(make([]byte, 16<<20))
	_ = z.Close()
	bomb := bytes.NewBuffer(bytes.Repeat(member.Bytes(), 16)) // a file of gzip may have several members
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	frame := append(append([]byte{1}, binary.BigEndian.AppendUint32(nil, uint32(bomb.Len()))...), bomb.Bytes()...)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+target.GRPC+a2av1.A2AService_SendMessage_FullMethodName, bytes.NewReader(frame))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{"Content-Type": "application/grpc", "Te": "trailers", "Grpc-Encoding": "gzip", "Authorization": "Bearer acme/ann"} {
		req.Header.Set(k, v)
	}
	plain := &http.Transport{Protocols: &http.Protocols{}}
	plain.Protocols.SetUnencryptedHTTP2(true)
	defer plain.CloseIdleConnections()
	resp, err := plain.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if got := resp.Trailer.Get("Grpc-Status") + resp.Header.Get("Grpc-Status"); got != "8" && got != "12" { // RESOURCE_EXHAUSTED, or not served at all
		t.Errorf("gRPC status %q: %v %v", got, resp.Header, resp.Trailer)
	}
	answer, err := target.As("acme", "ann").Do(t.Context(), http.MethodPost, "/echo/message:send", bomb.Bytes(), map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"})
	if err != nil || answer.Status != http.StatusUnsupportedMediaType {
		t.Errorf("REST: %+v, %v", answer, err)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 48<<20 {
		t.Errorf("%d MiB were allocated for 256 MiB of nothing", grown>>20)
	} else {
		t.Logf("%d MiB", grown>>20)
	}
	honest(t, target)
}

// TestT_37_Descriptors has a server that may have 256 descriptors run out of them. Its connections go on,
// and once others are closed it accepts again.
func TestT_37_Descriptors(t *testing.T) {
	t.Parallel()
	if os.Getenv("T_37_SERVER") != "" {
		target := rig.Serve(t, server.Config{Agents: rig.Manager(t, says("echo"))})
		fmt.Println("serving", target.HTTP)
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -n 256; exec "$0" -test.run='^TestT_37_Descriptors$' -test.v`, os.Args[0])
	cmd.Env = append(os.Environ(), "T_37_SERVER=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var at string
	lines := bufio.NewScanner(stdout)
	for at == "" && lines.Scan() {
		_, at, _ = strings.Cut(lines.Text(), "serving ")
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }()
	ask := func(c *http.Client, d time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/healthz", nil)
		if err != nil {
			return err
		}
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return errors.Join(err, resp.Body.Close())
	}
	existing := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer existing.CloseIdleConnections()
	if err := ask(existing, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	var others []net.Conn
	for range 400 {
		others = append(others, connect(t, at, ""))
	}
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for ask(fresh, time.Second) == nil { // the server still takes what was opened before
	}
	if err := ask(existing, 5*time.Second); err != nil {
		t.Errorf("an existing connection: %v", err)
	}
	for _, c := range others {
		_ = c.Close()
	}
	if err := ask(fresh, 10*time.Second); err != nil {
		t.Errorf("a new connection, when the others are closed: %v", err)
	}
	_ = stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestT_8_PathsOfMethods: gRPC calls whose path is another spelling of a method, with a valid key and
// without one, reach no method.
func TestT_8_PathsOfMethods(t *testing.T) {
	t.Parallel()
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, says("echo")), Settings: rig.Keys(twoAccounts...)})
	message, err := proto.Marshal(rig.Text("echo", "m1", "hi"))
	if err != nil {
		t.Fatal(err)
	}
	body := append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
	const method = "/lf.a2a.v1.A2AService/SendMessage"
	for _, key := range []string{"Bearer acme/ann", ""} {
		for _, path := range []string{
			method, method[1:], "/" + method, "//lf.a2a.v1.A2AService//SendMessage", method + "/", method + "?x=1", method + "%2f", "/lf.a2a.v1.A2AService/sendMessage",
			"/LF.a2a.v1.A2AService/SendMessage", "/x/.." + method, "/lf.a2a.v1.A2AService%2FSendMessage", "/lf.a2a.v1.A2AService", "*", "", "/",
		} {
			st, reason := rawCall(t, target.GRPC, path, key, body)
			switch {
			case path == method && key != "":
				if st != "0" {
					t.Errorf("%q: status %s", path, st)
				}
			case st == "0" || st == "":
				t.Errorf("%q with key %q: status %q, %s", path, key, st, reason)
			}
		}
	}
	list, err := rig.NewREST(target.As("acme", "ann")).List(t.Context(), &a2av1.ListTasksRequest{})
	if err != nil || list.GetTotalSize() != 1 {
		t.Errorf("%d tasks, %v; one call had the path of a method", list.GetTotalSize(), err)
	}
}

// rawCall calls a method over a connection of its own. It returns the status, or what the server did
// instead of returning one.
func rawCall(t *testing.T, address, path, key string, body []byte) (grpcStatus, otherwise string) {
	t.Helper()
	f, conn := framer(t, address)
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	defer conn.Close()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	headers := []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: path}, {Name: ":authority", Value: "x"},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}
	if key != "" {
		headers = append(headers, hpack.HeaderField{Name: "authorization", Value: key})
	}
	for _, h := range headers {
		_ = enc.WriteField(h)
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	_ = f.WriteData(1, true, body) // the stream may have ended
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return "", err.Error()
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			for _, h := range frame.Fields {
				if h.Name == "grpc-status" {
					return h.Value, ""
				}
			}
			if frame.StreamEnded() {
				return "ended without a status", ""
			}
		case *http2.RSTStreamFrame:
			return "reset", frame.ErrCode.String()
		case *http2.GoAwayFrame:
			return "gone away", frame.ErrCode.String()
		}
	}
}
