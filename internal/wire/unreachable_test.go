package wire

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// TestWhyUnreachable pins the texts of net/http, crypto/tls and gRPC that are matched, with errors
// that they return.
func TestWhyUnreachable(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	garbage := listen(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		_, _ = io.WriteString(c, "220 mail.example ESMTP\r\n")
	})
	silent := listen(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) })
	gone := listen(t, nil)
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	ended, end := context.WithCancel(t.Context())
	end()

	get := func(ctx context.Context, url string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	check := func(address string, creds credentials.TransportCredentials) error {
		_, err := dial(t, address, creds).Check(t.Context(), &healthv1.HealthCheckRequest{})
		return err
	}
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"no server", get(t.Context(), "http://"+gone), "connection refused"},
		{"no server, over gRPC", check(gone, insecure.NewCredentials()), "connection refused"},
		{"another protocol", get(t.Context(), "http://"+garbage), NotHTTP},
		{"it hangs up", get(t.Context(), "http://"+silent), Closed},
		{"plain instead of TLS", get(t.Context(), "https://"+plain.Listener.Addr().String()), "it does not speak TLS"},
		{"an unknown certificate", get(t.Context(), secure.URL), "its certificate is not trusted"},
		{"HTTP/1 instead of gRPC", check(plain.Listener.Addr().String(), insecure.NewCredentials()), NotGRPC},
		{"plain instead of TLS, over gRPC", check(plain.Listener.Addr().String(), credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})), "it does not speak TLS"},
		{"no such host", &net.DNSError{Err: "no such host", Name: "agent.invalid", IsNotFound: true}, "no such host"},
		{"no time", get(late, plain.URL), "no answer in time"},
		{"canceled", get(ended, plain.URL), "interrupted"},
	} {
		if c.err == nil {
			t.Errorf("%s: no error", c.name)
		} else if got := WhyUnreachable(c.err); got != c.want {
			t.Errorf("%s: %s, want %s: %v", c.name, got, c.want, c.err)
		}
	}
}

// TestIsOversized pins the text of gRPC for an answer that is too large.
func TestIsOversized(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	healthv1.RegisterHealthServer(s, health.NewServer())
	go func() { _ = s.Serve(l) }()
	defer s.Stop()
	client := dial(t, l.Addr().String(), insecure.NewCredentials())
	_, err = client.Check(t.Context(), &healthv1.HealthCheckRequest{}, grpc.MaxCallRecvMsgSize(1))
	if !IsOversized(status.Convert(err)) {
		t.Error(err)
	}
	if _, err = client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: strings.Repeat("x", 9)}); err == nil || IsOversized(status.Convert(err)) {
		t.Error(err)
	}
}

func dial(t *testing.T, address string, creds credentials.TransportCredentials) healthv1.HealthClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return healthv1.NewHealthClient(conn)
}

// listen serves connections with serve, one after the other, and returns the address. With nil
// nothing listens there any more.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if serve == nil {
		_ = l.Close()
		return l.Addr().String()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}
