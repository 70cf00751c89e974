package httpapi

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/pkg/agent"
)

// origins decides which pages may call the server.
type origins struct {
	keys bool // callers are authenticated
}

// checkHost rejects requests that a page of another site made a browser send to a server
// without keys, which treats every client as its only caller. open says that the request needs no key. It checks Host, because a
// name of another site may resolve to a loopback address (DNS rebinding), and Origin. A
// proxy makes no difference: without keys the server listens on loopback only, where a
// proxy cannot be told from a browser.
func (s origins) checkHost(now *settings.Snapshot, r *http.Request, open bool) error {
	if s.keys {
		return nil
	}
	if !ownHost(now, r.Host) {
		return foreignError("Host", r.Host)
	}
	if open { // cards are public
		return nil
	}
	for _, origin := range r.Header.Values("Origin") {
		if u, err := url.Parse(origin); (err != nil || !ownHost(now, u.Host)) && !s.mayCall(now, origin) {
			return foreignError("Origin", origin)
		}
	}
	return nil
}

// checkPage rejects requests that a page of another site made a browser send with its certificate, which
// the browser adds by itself.
func (s origins) checkPage(now *settings.Snapshot, r *http.Request) error {
	origins := r.Header.Values("Origin")
	for _, origin := range origins {
		if u, err := url.Parse(origin); (err != nil || u.Host == "" || !serves(now, u.Host, r.Host)) && (origin == "*" || !slices.Contains(now.GetCors().GetOrigins(), origin)) {
			return foreignPageError("Origin", origin)
		}
	}
	if from := r.Header.Get("Sec-Fetch-Site"); from == "cross-site" && len(origins) == 0 {
		return foreignPageError("Sec-Fetch-Site", from)
	}
	return nil
}

// serves reports whether a host, with or without a port, is that of the public URL or of a request. The
// certificate of the server was valid for the latter, so that no other site can have its name.
func serves(now *settings.Snapshot, host, requested string) bool {
	if public, err := url.Parse(now.GetPublicUrl()); err == nil && public.Host != "" && hostName(host) == hostName(public.Host) {
		return true
	}
	return strings.EqualFold(host, requested)
}

func foreignPageError(header, value string) error {
	return agent.Errorf(agent.CodePermissionDenied, agent.ReasonPermissionDenied,
		"%s %.64q is not accepted from a client with a certificate; set server.public_url, or list the page in server.cors", header, value)
}

// ownHost reports whether a host, with or without a port, is that of the public URL, or one
// that every browser resolves to this machine.
func ownHost(now *settings.Snapshot, host string) bool {
	name := hostName(host)
	if public, err := url.Parse(now.GetPublicUrl()); err == nil && public.Host != "" && name == hostName(public.Host) {
		return true
	}
	return isLoopback(name)
}

// isLoopback reports whether every browser resolves a name or address to this machine.
func isLoopback(name string) bool {
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || err == nil && ip.Unmap().IsLoopback()
}

// hostName returns the name or address in a host, without its port.
func hostName(host string) string {
	u := url.URL{Host: host}
	return strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
}

func foreignError(header, value string) error {
	return agent.Errorf(agent.CodePermissionDenied, agent.ReasonPermissionDenied,
		"%s %.64q is not accepted by a server without API keys; call localhost, or set server.public_url, "+
			"list the page in server.cors, or configure API keys in server.auth", header, value)
}

// Values of the CORS headers for pages of other origins.
const (
	// corsRequest lists the request headers that pages may send.
	corsRequest = "Accept, Authorization, Content-Type, A2A-Version, A2A-Extensions, X-A2A-Extensions, Last-Event-ID, " +
		"If-None-Match, If-Modified-Since, Range, If-Range, Grpc-Timeout, Team-Path, Traceparent, Tracestate, " +
		"Mcp-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name"
	// corsExposed lists the response headers that pages may read.
	corsExposed = "A2A-Extensions, X-A2A-Extensions, X-Request-Id, Retry-After, WWW-Authenticate, Allow, ETag, Last-Modified, Location, " +
		"Accept-Ranges, Content-Range, Content-Disposition, Mcp-Session-Id, X-Should-Retry"
	corsMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"
	// corsAge is how long a browser may cache a preflight, in seconds.
	corsAge = "7200"
)

// mayCall reports whether pages of an origin may call this server. "*" applies only to a
// server with keys: a server without keys treats every client as the same caller, so any
// page in a browser on this machine could act as that caller.
func (s origins) mayCall(now *settings.Snapshot, origin string) bool {
	return slices.Contains(now.GetCors().GetOrigins(), origin) && origin != "*" || s.everyOrigin(now)
}

func (s origins) everyOrigin(now *settings.Snapshot) bool {
	return s.keys && slices.Contains(now.GetCors().GetOrigins(), "*")
}

// crossOrigin sets the headers that let a page of another origin read the answer. It
// answers a preflight, which a browser sends before the call and without its key, and
// reports whether it did. Access-Control-Allow-Credentials is never sent: a page sends
// its key itself, and the server uses no cookies.
func (s origins) crossOrigin(now *settings.Snapshot, w http.ResponseWriter, r *http.Request) bool {
	if len(now.GetCors().GetOrigins()) == 0 {
		return false
	}
	h := w.Header()
	if !s.everyOrigin(now) {
		h.Add("Vary", "Origin")
	}
	origin := r.Header.Values("Origin")
	if len(origin) != 1 || !s.mayCall(now, origin[0]) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin[0])
	if s.everyOrigin(now) {
		h.Set("Access-Control-Allow-Origin", "*")
	}
	h.Set("Access-Control-Expose-Headers", corsExposed)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", corsMethods)
	h.Set("Access-Control-Allow-Headers", strings.Join(append([]string{corsRequest}, now.GetCors().GetHeaders()...), ", "))
	h.Set("Access-Control-Max-Age", corsAge)
	if r.ContentLength != 0 {
		h.Set("Connection", "close") // do not wait for a body
	}
	call.LimitWrite(w)
	w.WriteHeader(http.StatusNoContent)
	return true
}
