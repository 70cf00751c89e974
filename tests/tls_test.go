package tests

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/testcerts"
	"github.com/agentteams/team-server/pkg/scripted"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// serveTLS serves an agent on loopback with a certificate of an authority until the test ends.
func serveTLS(t *testing.T, ca *testcerts.Authority, c server.Config) rig.Target {
	t.Helper()
	cert, key := ca.Issue(time.Now().Add(time.Hour), "127.0.0.1", "team.example")
	dir := t.TempDir()
	settings := &teamv1.ServerSettings{Http: "127.0.0.1:0", Grpc: "127.0.0.1:0", Tls: &teamv1.ServerTls{
		Cert: testcerts.Write(t, dir, "cert.pem", cert), Key: testcerts.Write(t, dir, "key.pem", key), ClientCa: testcerts.Write(t, dir, "ca.pem", ca.PEM),
	}}
	proto.Merge(settings, c.Settings)
	c.Settings = settings
	agent, err := scripted.New(scripted.Config{ID: "parrot", Steps: []*teamv1.ScriptedStep{{Do: &teamv1.ScriptedStep_Text{Text: "hello"}}}})
	if err != nil {
		t.Fatal(err)
	}
	c.Agent, c.Log = agent, cmp.Or(c.Log, zap.NewNop())
	s, err := server.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return rig.Target{GRPC: s.Addrs().GRPC, HTTP: s.Addrs().URL}
}

// TestT_10_ClientCertificates: callers are known by a name of their certificate, on every binding. A
// name that is not configured, a certificate of another authority and none are refused, as is an
// expired one. A bearer token takes precedence.
func TestT_10_ClientCertificates(t *testing.T) {
	t.Parallel()
	ca, other := testcerts.New(t, "ca"), testcerts.New(t, "other")
	target := serveTLS(t, ca, server.Config{
		Settings: &teamv1.ServerSettings{Auth: &teamv1.AuthConfig{ApiKeys: []*teamv1.ApiKey{rig.Key("acme", "key")}, Mtls: []*teamv1.CertificateClient{
			{San: "spiffe://team.example/ann", Name: "ann", Account: "acme"}, {San: "bob.example", Name: "bob", Account: "acme"},
			{San: "eve@team.example", Name: "eve", Account: "other", Permissions: []teamv1.Permission_Value{teamv1.Permission_READ}},
		}}},
	})
	if !strings.HasPrefix(target.HTTP, "https://") {
		t.Fatalf("serves %s", target.HTTP)
	}
	started := func(c rig.Client) (string, *rig.Error) {
		resp, err := c.Send(t.Context(), rig.Text("", rand.Text(), "x"))
		return resp.GetTask().GetId(), rig.Fault(err)
	}
	as := func(names ...string) rig.Target { return target.Secure(t, ca.Client(names...)) }
	mine := map[string]string{}
	rig.Each(t, as("unknown.example", "spiffe://team.example/ann"), func(t *testing.T, c rig.Client) {
		id, f := started(c)
		if f != nil {
			t.Fatal(f)
		}
		mine[c.Binding()] = id
	})
	rig.Each(t, as("bob.example"), func(t *testing.T, c rig.Client) {
		if _, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: mine[c.Binding()]}); rig.Fault(err).Code != "NotFound" {
			t.Errorf("a task of another principal: %v", err)
		}
	})
	rig.Each(t, as("spiffe://team.example/ann").As("acme", "key"), func(t *testing.T, c rig.Client) {
		if _, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: mine[c.Binding()]}); rig.Fault(err).Code != "NotFound" {
			t.Errorf("the bearer token does not take precedence: %v", err)
		}
	})
	for name, from := range map[string]rig.Target{"a name that is not configured": as("carl.example"), "no certificate": as()} {
		rig.Each(t, from, func(t *testing.T, c rig.Client) {
			if _, f := started(c); f == nil || f.Code != "Unauthenticated" || f.Reason != "UNAUTHENTICATED" {
				t.Errorf("%s: %v", name, f)
			}
		})
	}
	foreign := ca.Client()
	foreign.Certificates = other.Client("spiffe://team.example/ann").Certificates
	stale := ca.Client()
	pair, err := tls.X509KeyPair(ca.Issue(time.Now().Add(-time.Minute), "bob.example"))
	if err != nil {
		t.Fatal(err)
	}
	stale.Certificates = []tls.Certificate{pair}
	for name, config := range map[string]*tls.Config{"another authority": foreign, "expired": stale} {
		rig.Each(t, target.Secure(t, config), func(t *testing.T, c rig.Client) {
			if id, f := started(c); id != "" || f == nil {
				t.Errorf("%s is accepted", name)
			}
		})
	}
}

// TestT_35_Handshake: HTTPS offers HTTP/2 and HTTP/1.1, pages are told to use HTTPS, and a peer that
// does not finish the handshake is cut off within 15 seconds on both listeners.
func TestT_35_Handshake(t *testing.T) {
	t.Parallel()
	ca := testcerts.New(t, "ca")
	target := serveTLS(t, ca, server.Config{Settings: rig.Keys(rig.Key("acme", "ann"))})
	for version, config := range map[string]*tls.Config{"HTTP/2.0": ca.Client(), "HTTP/1.1": ca.Client()} {
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: version == "HTTP/2.0"}
		defer transport.CloseIdleConnections()
		for host, hsts := range map[string]string{"team.example": "max-age=31536000", "127.0.0.1": ""} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target.HTTP+"/healthz", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.Proto != version || resp.Header.Get("Strict-Transport-Security") != hsts {
				t.Errorf("%s, %s: %s, %q", version, host, resp.Proto, resp.Header.Get("Strict-Transport-Security"))
			}
		}
	}
	ended := make(chan error, 2)
	for _, address := range []string{target.GRPC, strings.TrimPrefix(target.HTTP, "https://")} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(15 * time.Second))
		go func() {
			_, err := io.Copy(io.Discard, conn)
			ended <- err
		}()
	}
	for range 2 {
		if err := <-ended; err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("the handshake is waited for: %v", err)
		}
	}
}

// TestT_35_FailedHandshakesAreLogged: a peer that does not speak TLS is logged, on both listeners.
func TestT_35_FailedHandshakesAreLogged(t *testing.T) {
	t.Parallel()
	core, logged := observer.New(zap.WarnLevel)
	failed := make(chan struct{}, 10)
	core = zapcore.RegisterHooks(core, func(e zapcore.Entry) error { // called after the line is there
		if e.Message == "a TLS handshake failed" {
			failed <- struct{}{}
		}
		return nil
	})
	target := serveTLS(t, testcerts.New(t, "ca"), server.Config{Log: zap.New(core)})
	for _, address := range []string{target.GRPC, strings.TrimPrefix(target.HTTP, "https://")} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(15 * time.Second))
		_, _ = io.WriteString(conn, "this is no handshake")
		_, _ = io.Copy(io.Discard, conn) // until the server closes the connection; over gRPC it logs after that
		select {
		case <-failed:
		case <-time.After(15 * time.Second):
		}
		lines := logged.FilterMessage("a TLS handshake failed").FilterField(zap.String("address", conn.LocalAddr().String())).All()
		if len(lines) != 1 || lines[0].ContextMap()["error"] == "" {
			t.Errorf("%s: logged %v, want one line about %s", address, logged.All(), conn.LocalAddr())
		}
	}
}

// TestT_35_StreamsOverTLS: streams and their ends are the same over TLS, with HTTP/2.
func TestT_35_StreamsOverTLS(t *testing.T) {
	t.Parallel()
	ca := testcerts.New(t, "ca")
	target := serveTLS(t, ca, server.Config{Settings: rig.Keys(rig.Key("acme", "ann"))}).Secure(t, ca.Client()).As("acme", "ann")
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		got, err := rig.Collect(c.Stream(t.Context(), rig.Text("", rand.Text(), "x")))
		if err != nil || len(got) < 2 {
			t.Errorf("%d updates, %v", len(got), err)
		}
	})
	card, _, err := rig.PublicCard(t.Context(), target, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range card.GetSupportedInterfaces() {
		if strings.HasPrefix(i.GetUrl(), "http://") {
			t.Errorf("the card names %s", i.GetUrl())
		}
	}
}

// TestA_01_RefusalsOverHTTP2: a request that is refused before its body is read is answered like any other: its stream
// ends, and is not reset, which some clients take for a failure. If the body does not come, it is not awaited for long.
func TestA_01_RefusalsOverHTTP2(t *testing.T) {
	t.Parallel()
	ca := testcerts.New(t, "ca")
	target := serveTLS(t, ca, server.Config{Settings: rig.Keys(rig.Key("acme", "ann"))})
	for name, whole := range map[string]bool{"the body comes late": true, "the body never comes": false} {
		t.Run(name, func(t *testing.T) {
			config := ca.Client()
			config.NextProtos = []string{"h2"}
			conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", strings.TrimPrefix(target.HTTP, "https://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
			if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
				t.Fatal(err)
			}
			f := http2.NewFramer(conn, conn)
			f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
			var block bytes.Buffer
			enc := hpack.NewEncoder(&block)
			for _, h := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":path", "/message:send"}, {":authority", "127.0.0.1"}, {"content-type", "application/json"}, {"content-length", "2"}} {
				_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
			}
			_ = f.WriteSettings()
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
			_ = f.WritePing(false, [8]byte{1})
			status, ended := "", false
			for !ended {
				frame, err := f.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				switch frame := frame.(type) {
				case *http2.PingFrame: // the server has read the headers
					if whole {
						_ = f.WriteData(1, true, []byte("{}"))
					}
				case *http2.MetaHeadersFrame:
					status = frame.PseudoValue("status")
				case *http2.DataFrame:
					ended = frame.StreamEnded()
				case *http2.RSTStreamFrame:
					t.Fatalf("after status %q the stream is reset: %v", status, frame.ErrCode)
				}
			}
			if status != "401" {
				t.Errorf("status %q, want 401", status)
			}
			_ = f.WritePing(false, [8]byte{2}) // a reset would come before its answer
			for {
				frame, err := f.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				if reset, ok := frame.(*http2.RSTStreamFrame); ok && whole {
					t.Fatalf("after its end the stream is reset: %v", reset.ErrCode)
				}
				if ping, ok := frame.(*http2.PingFrame); ok && ping.Data[0] == 2 {
					return
				}
			}
		})
	}
}

// TestT_7_ClearBeyondLoopback: without TLS the server listens on loopback only, unless a proxy does TLS.
func TestT_7_ClearBeyondLoopback(t *testing.T) {
	t.Parallel()
	agent, err := scripted.New(scripted.Config{ID: "parrot", Steps: []*teamv1.ScriptedStep{{Do: &teamv1.ScriptedStep_Text{Text: "hello"}}}})
	if err != nil {
		t.Fatal(err)
	}
	c := server.Config{Agent: agent, Log: zap.NewNop(), Settings: &teamv1.ServerSettings{Auth: rig.Auth(rig.Key("acme", "ann")), Grpc: "off", Http: "0.0.0.0:0"}}
	_, err = server.New(c)
	if err == nil || !strings.Contains(err.Error(), "refusing to serve on 0.0.0.0 without TLS") || !strings.Contains(err.Error(), "server.tls: {terminated_by_proxy: true}") {
		t.Errorf("got %v", err)
	}
	c.Settings.Tls = &teamv1.ServerTls{TerminatedByProxy: true}
	s, err := server.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
