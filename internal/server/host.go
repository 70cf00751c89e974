package server

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/agentteams/team-server/pkg/agent"
)

// checkHost refuses what pages of other sites have a browser send here: a name of theirs
// may lead to a loopback address, and a server without keys takes whoever reaches it
// for its only caller. A proxy that is trusted answers for what it passes on.
func (s *Server) checkHost(r *http.Request) error {
	if s.keys.enabled() || fromProxy(s.config.TrustedProxies, r.RemoteAddr) {
		return nil
	}
	if r.Host != "" && !s.ownHost(r.Host) {
		return foreign("Host", r.Host)
	}
	if s.isOpen(r) { // pages of other origins may read cards, too
		return nil
	}
	for _, origin := range r.Header.Values("Origin") {
		if u, err := url.Parse(origin); (err != nil || !s.ownHost(u.Host)) && !s.mayCall(origin) {
			return foreign("Origin", origin)
		}
	}
	return nil
}

// ownHost reports whether a host, with a port or without, is this machine's in every
// browser, or that of the public URL.
func (s *Server) ownHost(host string) bool {
	name := hostName(host)
	if public, err := url.Parse(s.config.PublicURL); err == nil && public.Host != "" && name == hostName(public.Host) {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || err == nil && ip.Unmap().IsLoopback()
}

// hostName is the name or the address in a host, without its port.
func hostName(host string) string {
	u := url.URL{Host: host}
	return strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
}

func foreign(header, value string) error {
	return agent.Errorf(agent.CodePermissionDenied, agent.ReasonPermissionDenied,
		"a server without API keys takes calls to localhost, and none with %s %.64q; it also takes those to "+
			"server.public_url and of pages in server.cors, and with server.auth those of whoever has a key", header, value)
}
