package httpapi

import (
	"context"
	"net/http"
	"regexp"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/status"

	"github.com/agentteams/team-server/internal/wire"
)

// answersAsGet reports whether a HEAD request is handled as a GET, whose body net/http
// leaves out. Streams are not, because they might never end.
func answersAsGet(r *http.Request) bool {
	return r.Method == http.MethodHead && !strings.HasSuffix(r.URL.Path, ":subscribe") && !strings.HasSuffix(r.URL.Path, ":watch")
}

// methodNotAllowed returns the error for a method that a path does not support; allow lists
// those that it does.
func methodNotAllowed(r *http.Request, allow string) *status.Status {
	return wire.NotServed("method %s is not supported here; use %s", r.Method, allow)
}

// probe is the context value of a request that only asks whether a route exists; see
// allowed.
type probe struct{ found bool }

type probeKey struct{}

// isProbe reports whether a request is a probe. If it is, isProbe records the result.
func isProbe(r *http.Request, found bool) bool {
	p, ok := r.Context().Value(probeKey{}).(*probe)
	if ok {
		p.found = found
	}
	return ok
}

// offered reports whether the route of a request does more than reject it with wrongMethod.
func offered(r *http.Request) bool {
	pattern, _ := runtime.HTTPPattern(r.Context())
	switch pattern.Verb() {
	case "cancel", "process", "processStream", "answer", "pause", "resume", "stop":
		return r.Method == http.MethodPost
	}
	return true
}

// allowed returns the methods that the path of r supports, as the value of an Allow header.
// It probes each method.
func allowed(mux *runtime.ServeMux, w http.ResponseWriter, r *http.Request) string {
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions} {
		p := &probe{}
		ask := r.WithContext(context.WithValue(r.Context(), probeKey{}, p))
		ask.Method = method
		mux.ServeHTTP(w, ask)
		if !p.found {
			continue
		}
		methods = append(methods, method)
		if ask.Method = http.MethodHead; answersAsGet(ask) && method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	return strings.Join(methods, ", ")
}

// stopPath matches the paths of the methods of call.StopsWork: tasks of A2A 1.0 and 0.3, with and without a tenant,
// and those of the server's own services.
var stopPath = regexp.MustCompile(`^(/[^/]+){0,2}/tasks/[^/]+:cancel$|^/team/v1/agents/[^/]+:cancel$|^/team/v1/collaborations/[^/]+:stop$|^/team/v1/halts(:resume)?$`)

// stopsAt reports whether a request over REST ends work, as the methods of call.StopsWork do. The path of a
// request over JSON-RPC does not tell.
func stopsAt(r *http.Request) bool {
	return r.Method == http.MethodPost && stopPath.MatchString(r.URL.Path)
}
