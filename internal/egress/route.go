package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"strings"
	"sync"
)

// RouteConfig configures a Route. Own and Others are required.
type RouteConfig struct {
	// Addresses are the addresses that the operator wrote, as HOST:PORT.
	Addresses []string
	// Own makes the connections to Addresses, and to other ports of their hosts as far as Route says.
	// Others makes all other connections.
	Own, Others *Dialer
	// TLS is used instead of the configurations of Own and Others; nil means those. Client
	// certificates and ServerName are for the hosts of Addresses only.
	TLS *tls.Config
	// Refused is called with HOST:PORT and the error of a connection that is not allowed, and returns
	// the error that the caller of the Route gets. Nil means the same error.
	Refused func(address string, err error) error
}

// Route makes connections for a peer to which the operator wrote an address and which names others
// itself. It is safe for concurrent use.
//
// What others name is checked by Others. Addresses are not, unless the host has answered from a public
// address before: then its name must not lead to one that is not public. Neither are other ports of the
// machine that the operator wrote: of an IP address, of this machine if it is a loopback host, and of
// the private addresses from which a host has answered if it never answered from a public one.
type Route struct {
	RouteConfig
	own      *Dialer // like Own, with allow
	loopback bool    // one of the hosts is this machine
	ports    map[string]map[string]bool

	mu   sync.Mutex
	from map[string]map[netip.Addr]bool // by host, the addresses that answered; guarded by mu
}

// NewRoute returns a Route.
func NewRoute(c RouteConfig) *Route {
	r := &Route{RouteConfig: c, ports: map[string]map[string]bool{}, from: map[string]map[netip.Addr]bool{}}
	for _, address := range c.Addresses {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			continue
		}
		host = normal(host)
		if r.ports[host] == nil {
			r.ports[host] = map[string]bool{}
		}
		r.ports[host][port] = true
		r.loopback = r.loopback || IsLoopback(host)
	}
	r.own = c.Own.with(r.allow)
	return r
}

// IsLoopback reports whether a host is this machine by its name or IP address.
func IsLoopback(host string) bool {
	name := normal(host)
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || err == nil && ip.Unmap().IsLoopback()
}

// isOwn reports whether a host is one of Addresses. With a loopback host all names of this machine are.
func (r *Route) isOwn(host string) bool {
	host = normal(host)
	ip, err := netip.ParseAddr(host)
	return r.ports[host] != nil || r.loopback && (IsLoopback(host) || err == nil && ip.IsUnspecified())
}

// allow is Config.Allow of the connections to own hosts.
func (r *Route) allow(ctx context.Context, addr netip.AddrPort) error {
	if r.Own.allow != nil {
		if err := r.Own.allow(ctx, addr); err != nil {
			return err
		}
	}
	host, port := hostOf(ctx)
	if r.trusts(host, port, addr.Addr()) || r.Others.allow == nil {
		return nil
	}
	return r.Others.allow(ctx, addr)
}

// trusts reports whether a connection to an own host need not be checked.
func (r *Route) trusts(host, port string, at netip.Addr) bool {
	literal, err := netip.ParseAddr(host)
	switch {
	case r.loopback && (IsLoopback(host) || err == nil && literal.IsUnspecified()):
		return at.IsLoopback() || at.IsUnspecified()
	case err == nil:
		return literal.Unmap() == at
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for ip := range r.from[host] {
		if isPublic(ip) {
			return false
		}
	}
	return r.ports[host][port] || r.from[host][at]
}

// answered records from where an own host has answered.
func (r *Route) answered(host string, at net.Addr) {
	tcp, ok := at.(*net.TCPAddr)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.from[host] == nil {
		r.from[host] = map[netip.Addr]bool{}
	}
	if len(r.from[host]) < maxFrom {
		r.from[host][tcp.AddrPort().Addr().Unmap()] = true
	}
}

// maxFrom is the number of addresses that are remembered of a host.
const maxFrom = 64

// DialContext connects to address, which has the form host:port.
func (r *Route) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	by := r.Others
	if r.isOwn(host) {
		by = r.own
	}
	conn, err := by.DialContext(ctx, network, address)
	if r.Refused != nil && errors.Is(err, ErrNotAllowed) {
		return nil, r.Refused(address, err)
	}
	return conn, err
}

// TLSFor returns the configuration for connections to a host that use RouteConfig.TLS, or that of the
// dialer for the host.
func (r *Route) TLSFor(host string) *tls.Config {
	switch {
	case r.TLS == nil && r.isOwn(host):
		return r.Own.TLS()
	case r.TLS == nil:
		return r.Others.TLS()
	}
	c := r.TLS.Clone()
	if !r.isOwn(host) {
		c.Certificates, c.GetClientCertificate, c.ServerName = nil, nil, ""
	}
	return c
}

// Transport returns a transport for HTTP. Its connections to own hosts and to others are apart.
func (r *Route) Transport() http.RoundTripper {
	t := &routes{Route: r, own: r.Own.http.Clone(), others: r.Others.http.Clone()}
	t.own.DialContext, t.others.DialContext = r.DialContext, r.DialContext
	if r.TLS != nil {
		t.own.TLSClientConfig = r.TLS.Clone()
		t.others.TLSClientConfig = r.TLSFor("")
	}
	return t
}

// routes is the transport of a Route.
type routes struct {
	*Route
	own, others *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (t *routes) RoundTrip(req *http.Request) (*http.Response, error) {
	host := normal(req.URL.Hostname())
	if !t.isOwn(host) {
		return counted(t.others.RoundTrip(req))
	}
	if !t.ports[host][portText(req.URL)] {
		return counted(t.own.RoundTrip(req))
	}
	var at net.Addr
	trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { at = c.Conn.RemoteAddr() }}
	resp, err := t.own.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err == nil {
		t.answered(host, at)
	}
	return counted(resp, err)
}

// CloseIdleConnections closes the connections that are not in use.
func (t *routes) CloseIdleConnections() {
	t.own.CloseIdleConnections()
	t.others.CloseIdleConnections()
}
