package auth

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/testcerts"
)

// TestT_35_CertificatesAreReadAgain: a listener uses a new certificate once its files are complete, without a
// restart. Files that are damaged or do not belong together replace nothing, and are logged once.
func TestT_35_CertificatesAreReadAgain(t *testing.T) {
	ca, dir := testcerts.New(t, "ca"), t.TempDir()
	issue := func() (cert, key []byte) { return ca.Issue(time.Now().Add(time.Hour), "team.example") }
	cert, key := issue()
	f := &teamv1.ServerTls{Cert: testcerts.Write(t, dir, "cert.pem", cert), Key: testcerts.Write(t, dir, "key.pem", key)}
	core, log := observer.New(zap.InfoLevel)
	c, err := ReadCertificates(f, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	c.every = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	defer running.Wait()
	defer cancel()
	l, err := tls.Listen("tcp", "127.0.0.1:0", c.Config("h2"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).HandshakeContext(ctx)
			conn.Close()
		}
	})
	serves := func() []byte {
		d := tls.Dialer{Config: &tls.Config{RootCAs: ca.Pool(), ServerName: "team.example", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}}
		conn, err := d.DialContext(ctx, "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		state := conn.(*tls.Conn).ConnectionState()
		if state.NegotiatedProtocol != "h2" || state.Version < tls.VersionTLS13 {
			t.Errorf("protocol %q, version %x", state.NegotiatedProtocol, state.Version)
		}
		return state.PeerCertificates[0].Raw
	}
	await := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	errorLines := func() int { return log.FilterLevelExact(zap.ErrorLevel).Len() }
	first := serves()
	testcerts.Write(t, dir, "cert.pem", cert[:len(cert)/2])
	await("a damaged file is not logged", func() bool { return errorLines() > 0 })
	if !bytes.Equal(serves(), first) {
		t.Fatal("a damaged file is used")
	}
	second, secondKey := issue()
	before := errorLines()
	testcerts.Write(t, dir, "cert.pem", second) // the key follows
	await("a certificate without its key is not logged", func() bool { return errorLines() > before })
	if !bytes.Equal(serves(), first) {
		t.Error("a certificate without its key is used")
	}
	testcerts.Write(t, dir, "key.pem", secondKey)
	await("the new certificate is not served", func() bool { return !bytes.Equal(serves(), first) })
	before = errorLines()
	if err := os.Remove(f.GetKey()); err != nil {
		t.Fatal(err)
	}
	await("a missing file is not logged", func() bool { return errorLines() > before })
	if bytes.Equal(serves(), first) {
		t.Error("without its key file the certificate before is served")
	}
	d := tls.Dialer{NetDialer: &net.Dialer{}, Config: &tls.Config{RootCAs: ca.Pool(), ServerName: "team.example", MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}}
	if conn, err := d.DialContext(ctx, "tcp", l.Addr().String()); err == nil {
		conn.Close()
		t.Error("TLS 1.1 is accepted")
	}
	l.Close()
}
