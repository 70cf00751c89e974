// Package egress is the one way out: every outgoing connection, of agents,
// models, tools and push notifications alike, is dialled here.
package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"syscall"
	"time"
)

// Config configures a Dialer; the zero value is usable.
type Config struct {
	// ConnectTimeout bounds making a connection; 0 is 3 s.
	ConnectTimeout time.Duration
	// TLSTimeout bounds the TLS handshake of HTTP calls; 0 is 5 s.
	TLSTimeout time.Duration
	// CAFile names a PEM file of authorities that are trusted besides the system's.
	CAFile string
	// Allow is asked before each connection, after the name was resolved, with
	// the very address that will be connected to: a name that resolves to
	// something else a moment later changes nothing. An error refuses it. Nil
	// allows every address.
	Allow func(ctx context.Context, addr netip.AddrPort) error
}

// Dialer makes outgoing connections. Proxies of the environment are not used:
// they would connect past Allow. Safe for concurrent use.
type Dialer struct {
	dialer net.Dialer
	tls    *tls.Config
	http   *http.Transport
}

// New returns a Dialer, or the reason why its CA file cannot be used.
func New(cfg Config) (*Dialer, error) {
	roots, err := roots(cfg.CAFile)
	if err != nil {
		return nil, err
	}
	d := &Dialer{
		dialer: net.Dialer{Timeout: orDefault(cfg.ConnectTimeout, 3*time.Second), ControlContext: control(cfg.Allow)},
		tls:    &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
	}
	d.http = &http.Transport{
		DialContext:            d.DialContext,
		TLSClientConfig:        d.TLS(),
		TLSHandshakeTimeout:    orDefault(cfg.TLSTimeout, 5*time.Second),
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           1024,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return d, nil
}

// DialContext connects to host:port.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d.dialer.DialContext(ctx, network, address)
}

// TLS returns a configuration of the caller's own that trusts what d trusts.
func (d *Dialer) TLS() *tls.Config { return d.tls.Clone() }

// HTTPClient returns a client that follows no redirect, keeps no cookie and has
// no timeout of its own: the context of each request bounds it. Connections are
// shared by all clients of d.
func (d *Dialer) HTTPClient() *http.Client {
	return &http.Client{Transport: d.http, CheckRedirect: noRedirect}
}

// Close closes the connections that nobody uses.
func (d *Dialer) Close() { d.http.CloseIdleConnections() }

// ErrTooLarge: a body is larger than allowed.
var ErrTooLarge = errors.New("body is too large")

// ReadBody reads at most limit bytes, as they are after decompression, and
// answers ErrTooLarge when there is more.
func ReadBody(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("reading body: %w", err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("more than %d bytes: %w", limit, ErrTooLarge)
	}
	return b, nil
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func orDefault(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}

type controlFunc func(ctx context.Context, network, address string, c syscall.RawConn) error

func control(allow func(context.Context, netip.AddrPort) error) controlFunc {
	if allow == nil {
		return nil
	}
	return func(ctx context.Context, _, address string, _ syscall.RawConn) error {
		addr, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("address %q is no IP address and port: %w", address, err)
		}
		return allow(ctx, netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()))
	}
}

func roots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // nil is the system's pool
	}
	pem, err := os.ReadFile(file) //nolint:gosec // the operator's own file
	if err != nil {
		return nil, fmt.Errorf("reading CA file: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the system's authorities: %w", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA file %s holds no certificate in PEM form", file)
	}
	return pool, nil
}

// WithoutURL takes the address out of the error of a request: it may hold a secret.
func WithoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
