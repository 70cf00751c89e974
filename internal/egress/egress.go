// Package egress makes all outgoing connections: those to agents, models, tools and
// webhooks.
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

// Config configures a Dialer. The zero value is valid.
type Config struct {
	// ConnectTimeout is the timeout for connecting; the default is 3 s.
	ConnectTimeout time.Duration
	// TLSTimeout is the timeout for the TLS handshake of HTTP calls; the default is 5 s.
	TLSTimeout time.Duration
	// CAFile is a PEM file with certificate authorities to trust in addition to the
	// system's.
	CAFile string
	// Allow is called before each connection with the address to connect to, after its name
	// was resolved, so that DNS rebinding cannot bypass it. If it returns an error, the
	// connection is not made. If Allow is nil, every address is allowed. See Guard.Allow.
	Allow func(ctx context.Context, addr netip.AddrPort) error
}

// Dialer makes outgoing connections. It ignores the proxy settings of the environment,
// because a proxy would bypass Allow. Dialer is safe for concurrent use.
type Dialer struct {
	dialer net.Dialer
	allow  func(context.Context, netip.AddrPort) error // Config.Allow
	tls    *tls.Config
	http   *http.Transport
}

// New returns a Dialer. It returns an error if CAFile cannot be used.
func New(cfg Config) (*Dialer, error) {
	roots, err := roots(cfg.CAFile)
	if err != nil {
		return nil, err
	}
	d := &Dialer{
		dialer: net.Dialer{Timeout: orDefault(cfg.ConnectTimeout, 3*time.Second), ControlContext: control(cfg.Allow)},
		allow:  cfg.Allow,
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

// with returns a Dialer like d with another Config.Allow, for DialContext only.
func (d *Dialer) with(allow func(context.Context, netip.AddrPort) error) *Dialer {
	dialer := d.dialer
	dialer.ControlContext = control(allow)
	return &Dialer{dialer: dialer, allow: allow, tls: d.tls}
}

// DialContext connects to address, which has the form host:port.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d.dialer.DialContext(withHost(ctx, address), network, address)
}

// TLS returns a new TLS configuration with the trusted authorities. The caller owns it.
func (d *Dialer) TLS() *tls.Config { return d.tls.Clone() }

// HTTPClient returns an HTTP client that does not follow redirects, stores no cookies and
// has no timeout; use the context of each request for one. All clients of d share
// connections.
func (d *Dialer) HTTPClient() *http.Client {
	return &http.Client{Transport: counting{d.http}, CheckRedirect: noRedirect}
}

// Close closes idle connections.
func (d *Dialer) Close() { d.http.CloseIdleConnections() }

// ErrTooLarge is the error for a body that is larger than allowed.
var ErrTooLarge = errors.New("body is too large")

// ReadBody reads a body of at most limit bytes, counted after decompression. The error
// wraps ErrTooLarge if it is larger.
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
			return fmt.Errorf("address %q is not an IP address and port: %w", address, err)
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
		return nil, fmt.Errorf("reading the system's certificate authorities: %w", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA file %s contains no PEM certificate", file)
	}
	return pool, nil
}

// WithoutURL returns the error of an HTTP request without its URL, which may contain a
// secret.
func WithoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
