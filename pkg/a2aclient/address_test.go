package a2aclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/secret"
)

// grpcAt returns a card with a gRPC interface at an address.
func grpcAt(address string) *a2av1.AgentCard {
	return offer(&a2av1.AgentInterface{Url: address, ProtocolBinding: GRPC, ProtocolVersion: V1})
}

// TestA_21_SchemesInCapitals: the card came over TLS, however its scheme was written, so
// credentials do not go over a connection without TLS.
func TestA_21_SchemesInCapitals(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan byte, 1)
	go func() {
		defer close(first)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		b := make([]byte, 1)
		if _, err := conn.Read(b); err == nil {
			first <- b[0]
		}
	}()
	defer l.Close()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		data, err := wire.Marshal(grpcAt(l.Addr().String()))
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(data)
	}))
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	c, err := Open(t.Context(), strings.Replace(s.URL, "https", "HTTPS", 1), Config{
		Token: secret.New("secret"), AnyGRPCPort: true, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.GetTask(t.Context(), &a2av1.GetTaskRequest{Id: "t"}); !errors.Is(err, ErrUnreachable) {
		t.Errorf("error is %v", err)
	}
	const handshake = 22 // type of the first TLS record
	if got := <-first; got != handshake {
		t.Errorf("the connection begins with byte %d, not with a TLS handshake", got)
	}
}

// TestA_21_CardsNameNoSockets: a card leads to a host and port, and to none of the other
// things that gRPC can connect to, such as sockets of this machine.
func TestA_21_CardsNameNoSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan bool, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_ = conn.Close()
		}
		accepted <- err == nil
	}()
	for _, address := range []string{
		"unix:" + path, "unix://" + path, "unix-abstract:x", "vsock:1:2", "xds:///x", "passthrough:///x:1", "dns://h.example/x:1",
		"ftp://h.example:1", "ann:hush@h.example:1", "http://ann:hush@h.example:1", "h.example:x", "h.example:1/x", "https://", ":1", "",
	} {
		for _, token := range []string{"", "secret"} {
			c, err := New(grpcAt(address), "http://h.example", Config{Token: secret.New(token), AnyGRPCPort: true})
			if err == nil {
				_, err = c.GetTask(t.Context(), &a2av1.GetTaskRequest{Id: "t"})
				_ = c.Close()
			}
			var none *InterfaceError
			if !errors.As(err, &none) || token == "" && none.Refusals[0].Why != BadAddress || strings.Contains(err.Error(), "hush") {
				t.Errorf("%q with token %q: %v", address, token, err)
			}
		}
	}
	_ = l.Close()
	if <-accepted {
		t.Error("a card made the client connect to a socket of this machine")
	}
}

// TestA_25_AddressesOfGRPC has the ways in which cards write the address of a gRPC
// interface, all of which lead to the same place.
func TestA_25_AddressesOfGRPC(t *testing.T) {
	for _, address := range []string{
		"h.example:443", "H.example", "dns:///h.example:443", "https://h.example", "HTTPS://h.example:443/", "https://h.example:443/desk", "grpcs://h.example",
	} {
		dialed := ""
		c, err := New(grpcAt(address), "https://h.example/x", Config{Token: secret.New("secret"), Dial: func(_ context.Context, _, to string) (net.Conn, error) {
			dialed = to
			return nil, errors.New("connection refused")
		}})
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if _, err := c.GetTask(t.Context(), &a2av1.GetTaskRequest{Id: "t"}); !errors.Is(err, ErrUnreachable) || dialed != "h.example:443" {
			t.Errorf("%s leads to %q: %v", address, dialed, err)
		}
		_ = c.Close()
	}
}

// TestSecure has the addresses of gRPC interfaces: one that does not say whether
// it wants TLS is as the card was.
func TestSecure(t *testing.T) {
	for _, tt := range []struct {
		url, target, want string
		secure            bool
	}{
		{"a.example:443", "https://a.example/x", "a.example:443", true},
		{"a.example:443", "http://a.example/x", "a.example:443", false},
		{"https://a.example:443/", "http://a.example/x", "a.example:443", true},
		{"http://a.example:80", "https://a.example/x", "a.example:80", false},
		{"grpcs://a.example:443", "http://a.example/x", "a.example:443", true},
		{"grpc://a.example:80", "https://a.example/x", "a.example:80", false},
	} {
		card, err := url.Parse(tt.target)
		if err != nil {
			t.Fatal(err)
		}
		if got, secure := grpcAddress(tt.url, card); got != tt.want || secure != tt.secure {
			t.Errorf("%s by the card of %s: %s, %v", tt.url, tt.target, got, secure)
		}
	}
}
