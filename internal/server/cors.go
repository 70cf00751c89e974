package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/agentteams/team-server/internal/settings"
)

// Values of the CORS headers for pages of other origins.
const (
	// corsRequest lists the request headers that pages may send.
	corsRequest = "Accept, Authorization, Content-Type, A2A-Version, A2A-Extensions, X-A2A-Extensions, Last-Event-ID, " +
		"If-None-Match, If-Modified-Since, Range, If-Range, Grpc-Timeout, Team-Path, Traceparent, Tracestate"
	// corsExposed lists the response headers that pages may read.
	corsExposed = "A2A-Extensions, X-A2A-Extensions, X-Request-Id, Retry-After, WWW-Authenticate, Allow, ETag, Last-Modified, Location, " +
		"Accept-Ranges, Content-Range, Content-Disposition"
	corsMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"
	// corsAge is how long a browser may cache a preflight, in seconds.
	corsAge = "7200"
)

// mayCall reports whether pages of an origin may call this server. "*" applies only to a
// server with keys: a server without keys treats every client as the same caller, so any
// page in a browser on this machine could act as that caller.
func (s *Server) mayCall(now *settings.Snapshot, origin string) bool {
	return slices.Contains(now.GetCors().GetOrigins(), origin) && origin != "*" || s.everyOrigin(now)
}

func (s *Server) everyOrigin(now *settings.Snapshot) bool {
	return s.config.Auth != nil && slices.Contains(now.GetCors().GetOrigins(), "*")
}

// crossOrigin sets the headers that let a page of another origin read the answer. It
// answers a preflight, which a browser sends before the call and without its key, and
// reports whether it did. Access-Control-Allow-Credentials is never sent: a page sends
// its key itself, and the server uses no cookies.
func (s *Server) crossOrigin(now *settings.Snapshot, w http.ResponseWriter, r *http.Request) bool {
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
	limitWrite(w)
	w.WriteHeader(http.StatusNoContent)
	return true
}
