// Package egress tests where a server connects to. Its tests run in a network of their own, in which
// every address is this machine: no packet leaves it, and what listens at all addresses sees each
// connection that should not have been made.
package egress

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/agentteams/team-server/tests/rig"
)

// ownNetwork is the variable that is set in the process that runs the tests.
const ownNetwork = "TEAM_TEST_OWN_NETWORK"

// authority is the authority whose certificates the tests trust.
var authority *tls.Certificate

func TestMain(m *testing.M) {
	if os.Getenv(ownNetwork) == "" {
		os.Exit(again())
	}
	if why := prepare(); why != nil {
		fmt.Fprintln(os.Stderr, why)
		os.Exit(1)
	}
	rig.VerifyMain(m)
}

// again runs this program in a network of its own.
func again() int {
	dir, err := os.MkdirTemp("", "egress")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	missing := ""
	if _, err := exec.LookPath("ip"); err != nil {
		missing = "SKIP-MISSING-TOOL ip: install the package iproute2"
	} else if out, err := exec.CommandContext(context.Background(), "unshare", "--user", "--map-root-user", "--net", "true").CombinedOutput(); err != nil {
		missing = fmt.Sprintf("SKIP-MISSING-TOOL unshare: a network namespace is not permitted here (%v: %s)", err, strings.TrimSpace(string(out)))
	}
	args := append([]string{"--user", "--map-root-user", "--net", os.Args[0]}, os.Args[1:]...)
	if missing != "" {
		args = nil
	}
	cmd := exec.CommandContext(context.Background(), "unshare", args...)
	if args == nil {
		cmd = exec.CommandContext(context.Background(), os.Args[0], os.Args[1:]...)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), ownNetwork+"="+dir, "TEAM_TEST_NO_NETWORK="+missing, "SSL_CERT_FILE="+filepath.Join(dir, "ca.pem"))
	if err := cmd.Run(); err != nil {
		if code := (*exec.ExitError)(nil); errors.As(err, &code) {
			return code.ExitCode()
		}
		panic(err)
	}
	return 0
}

// prepare makes every address one of this machine, and makes an authority.
func prepare() error {
	if os.Getenv("TEAM_TEST_NO_NETWORK") != "" {
		return nil
	}
	for _, line := range []string{"link set lo up", "route add local default dev lo", "-6 route add local default dev lo"} {
		if out, err := exec.CommandContext(context.Background(), "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tests"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	cert, err := certificate(template, nil)
	if err != nil {
		return err
	}
	authority = cert
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})
	return os.WriteFile(os.Getenv("SSL_CERT_FILE"), block, 0o600)
}

// certificate returns a new certificate, signed by another one or by itself.
func certificate(template *x509.Certificate, by *tls.Certificate) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	parent, signer := template, any(key)
	if by != nil {
		if parent, err = x509.ParseCertificate(by.Certificate[0]); err != nil {
			return nil, err
		}
		signer = by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// needNetwork skips a test where no network of its own is permitted.
func needNetwork(t testing.TB) {
	t.Helper()
	if why := os.Getenv("TEAM_TEST_NO_NETWORK"); why != "" {
		t.Skip(why)
	}
}

// canary listens at addresses, in which no host means all, and fails a test at whose end it has seen a connection.
func canary(t testing.TB, addresses ...string) (seen func() []string) {
	t.Helper()
	needNetwork(t)
	var mu sync.Mutex
	var all []string
	var accepting sync.WaitGroup
	var listening []net.Listener
	t.Cleanup(func() {
		for _, l := range listening {
			_ = l.Close()
		}
		accepting.Wait()
		if got := seen(); len(got) > 0 {
			t.Errorf("connections to %v", got)
		}
	})
	seen = func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
	for _, address := range addresses {
		l, err := net.Listen("tcp", address) //nolint:noctx // does not block
		if err != nil {
			t.Fatal(err)
		}
		listening = append(listening, l)
		accepting.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				mu.Lock()
				all = append(all, c.LocalAddr().String())
				mu.Unlock()
				_ = c.Close()
			}
		})
	}
	return seen
}

// TestCanary: the canary sees a connection to any address, so that none is a result.
func TestCanary(t *testing.T) {
	needNetwork(t)
	for _, host := range []string{"127.0.0.1", "10.0.0.5", "169.254.169.254", "93.184.216.34", "[fd00::1]", "[::1]", "100.64.0.1"} {
		t.Run(host, func(t *testing.T) {
			l, err := net.Listen("tcp", "[::]:8088") //nolint:noctx // does not block
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", host+":8088")
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
		})
	}
}

// names is a name server for the whole process until a test ends. answer returns the addresses of
// a name, which is asked the nth time, from 0, for its IPv4 or its IPv6 addresses.
func names(t testing.TB, answer func(name string, n int) []string) {
	t.Helper()
	needNetwork(t)
	conn, err := net.ListenPacket("udp", "127.0.0.1:0") //nolint:noctx // does not block
	if err != nil {
		t.Fatal(err)
	}
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	var serving sync.WaitGroup
	t.Cleanup(func() { _ = conn.Close(); serving.Wait(); net.DefaultResolver = before })
	serving.Go(func() {
		asked := map[string]int{}
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			key := q.Type.String() + q.Name.String()
			m.Response, m.RCode, m.Additionals = true, dnsmessage.RCodeSuccess, nil
			for _, a := range answer(strings.TrimSuffix(q.Name.String(), "."), asked[key]) {
				ip := netip.MustParseAddr(a)
				h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
				switch {
				case ip.Is4() && q.Type == dnsmessage.TypeA:
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: ip.As4()}})
				case ip.Is6() && q.Type == dnsmessage.TypeAAAA:
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: ip.As16()}})
				}
			}
			asked[key]++
			if b, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(b, from)
			}
		}
	})
}

// table is a name server with fixed addresses.
func table(t testing.TB, hosts map[string][]string) {
	t.Helper()
	names(t, func(name string, _ int) []string { return hosts[name] })
}

// receive serves HTTP at an address until a test ends, with TLS for the given host names.
func receive(t testing.TB, address string, handler http.HandlerFunc, hosts ...string) *http.Server {
	t.Helper()
	needNetwork(t)
	l, err := net.Listen("tcp", address) //nolint:noctx // does not block
	if err != nil {
		t.Fatal(err)
	}
	if len(hosts) > 0 {
		cert, err := certificate(&x509.Certificate{
			SerialNumber: big.NewInt(2), DNSNames: hosts, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		}, authority)
		if err != nil {
			t.Fatal(err)
		}
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12})
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return s
}
