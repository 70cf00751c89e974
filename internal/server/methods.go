package server

import (
	"context"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/status"

	"github.com/agentteams/team-server/internal/wire"
)

// asGet reports whether a request is answered as if it were a GET: net/http
// leaves the body of an answer to HEAD out by itself. A stream would have no end.
func asGet(r *http.Request) bool {
	return r.Method == http.MethodHead && !strings.HasSuffix(r.URL.Path, ":subscribe") && !strings.HasSuffix(r.URL.Path, ":watch")
}

// notHere is the status for a method that a path does not have; it has those of allow.
func notHere(r *http.Request, allow string) *status.Status {
	return wire.NotServed("%s is not possible here; use %s", r.Method, allow)
}

// probe asks the routes whether they have a request, instead of running it.
type probe struct{ found bool }

type probeKey struct{}

// isProbe reports whether a request only asks, and answers it if so.
func isProbe(r *http.Request, found bool) bool {
	p, ok := r.Context().Value(probeKey{}).(*probe)
	if ok {
		p.found = found
	}
	return ok
}

// offered reports whether the route of a request does more than to refuse it.
func offered(r *http.Request) bool {
	pattern, _ := runtime.HTTPPattern(r.Context())
	switch pattern.Verb() {
	case "cancel", "process", "processStream", "answer", "pause", "resume", "stop":
		return r.Method == http.MethodPost
	}
	return true
}

// allowed lists the methods that the path of r has.
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
		if ask.Method = http.MethodHead; asGet(ask) && method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	return strings.Join(methods, ", ")
}
