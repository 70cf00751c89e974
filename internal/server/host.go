package server

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/pkg/agent"
)

// checkHost rejects requests that a page of another site made a browser send to a server
// without keys, which treats every client as its only caller. It checks Host, because a
// name of another site may resolve to a loopback address (DNS rebinding), and Origin. A
// proxy makes no difference: without keys the server listens on loopback only, where a
// proxy cannot be told from a browser.
func (s *Server) checkHost(now *settings.Snapshot, r *http.Request) error {
	if s.config.Auth != nil {
		return nil
	}
	if !ownHost(now, r.Host) {
		return foreignError("Host", r.Host)
	}
	if s.isOpen(r) { // cards are public
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
func (s *Server) checkPage(now *settings.Snapshot, r *http.Request) error {
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
