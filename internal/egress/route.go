package egress

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
)

// Route makes connections with one Dialer to some hosts, and with another one to all others. The
// two share no connections, so that what one of them may reach does not depend on the other.
type Route struct {
	// Hosts are the names and IP addresses of the hosts of Own.
	Hosts []string
	// Own makes the connections to Hosts, and Others those to all other hosts.
	Own, Others *Dialer
	// TLS is used instead of the configurations of Own and Others; nil means those.
	TLS *tls.Config
}

// pick returns the dialer for a host.
func (r Route) pick(host string) *Dialer {
	for _, own := range r.Hosts {
		if normal(own) == normal(host) {
			return r.Own
		}
	}
	return r.Others
}

// DialContext connects to address, which has the form host:port.
func (r Route) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return r.pick(host).DialContext(ctx, network, address)
}

// Transport returns a transport for HTTP that uses the connections of the dialers, or connections
// of its own if TLS is set.
func (r Route) Transport() http.RoundTripper {
	t := &routes{Route: r, own: r.Own.http, others: r.Others.http}
	if r.TLS != nil {
		t.own, t.others = t.own.Clone(), t.others.Clone()
		t.own.TLSClientConfig, t.others.TLSClientConfig = r.TLS.Clone(), r.TLS.Clone()
	}
	return t
}

// routes is the transport of a Route.
type routes struct {
	Route
	own, others *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (t *routes) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.pick(req.URL.Hostname()) == t.Own {
		return t.own.RoundTrip(req)
	}
	return t.others.RoundTrip(req)
}

// CloseIdleConnections closes the connections that are not in use.
func (t *routes) CloseIdleConnections() {
	t.own.CloseIdleConnections()
	t.others.CloseIdleConnections()
}
