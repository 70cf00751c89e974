package server

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/status"

	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/wire"
)

const cardPath = "/.well-known/agent-card.json"

func (s *Server) newHTTP() (*http.Server, error) {
	mux, err := s.newGateway()
	if err != nil {
		return nil, err
	}
	return &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.front(mux, w, r) }),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          zap.NewStdLog(s.log),
		// net/http would answer OPTIONS * itself, without a key.
		DisableGeneralOptionsHandler: true,
	}, nil
}

// front comes before routing and before a body is read: panics, request id, what pages
// of other sites send, identity, and the time that the caller allows.
func (s *Server) front(next http.Handler, w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	defer linger(w)
	in := newInbound(bindingOf(r), func(name string) []string { return serviceParameter(r, name) })
	if s.config.PublicURL == "" {
		in.base = forwarded(s.config.TrustedProxies, r)
	}
	in.addr = callerAddr(s.config.TrustedProxies, r.RemoteAddr, r.Header.Values("X-Forwarded-For"))
	open := s.isOpen(r)
	w.Header().Set("X-Request-Id", in.id)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if uris := in.activated(); uris != "" {
		w.Header().Set("A2A-Extensions", uris)
	}
	defer func() {
		if p := recover(); p != nil {
			s.logPanic(r.URL.Path, p)
			s.fail(w, r, wire.Status(errors.New("panic")))
		}
	}()
	if err := s.checkHost(r); err != nil {
		s.fail(w, r, wire.Status(err))
		return
	}
	if s.crossOrigin(w, r) {
		return
	}
	caller, err := s.keys.identify(r.Header.Values("Authorization"), in.addr)
	if err != nil && !open {
		s.fail(w, r, wire.Status(err))
		return
	}
	if err == nil {
		in.caller = &caller
	}
	ctx, cancel, err := bounded(r)
	if err != nil {
		s.fail(w, r, wire.Status(err))
		return
	}
	defer cancel()
	r.Header["Accept"] = []string{replyType(r)}
	routed := r.WithContext(withInbound(ctx, in))
	if open && r.ContentLength != 0 {
		w.Header().Set("Connection", "close") // do not wait for a body
		routed.Body, routed.ContentLength = http.NoBody, 0
	}
	routed.URL = placeV03(unescapedOnce(tenantOnce(placeRPC(r, in))), in)
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil { // r.URL.Query leaves out what it cannot read
		s.fail(w, r, wire.Status(wire.Invalid("", "has a malformed query")))
		return
	}
	if name := twice(query); name != "" {
		s.fail(w, r, wire.Status(wire.Invalid(name, "is there twice")))
		return
	}
	if asGet(r) {
		routed.Method = http.MethodGet
		routed.Header.Del("Range") // ranges are of GET alone
	}
	next.ServeHTTP(w, routed)
}

// twoSegments matches a path below an agent whose first two segments may both be the
// tenant.
var twoSegments = regexp.MustCompile(`^(/[^/]+)(/[^/]+)(?:/message:|/tasks(?:/|$)|/extendedAgentCard$|/\.well-known/|/v1/)`)

// tenantOnce returns an address with the tenant once if it has it twice, because the
// caller added the tenant to an interface URL that already ends in it.
func tenantOnce(u *url.URL) *url.URL {
	m := twoSegments.FindStringSubmatch(u.Path)
	if m == nil || m[1] != m[2] {
		return u
	}
	to := *u
	to.Path, to.RawPath = strings.TrimPrefix(u.Path, m[1]), strings.TrimPrefix(u.RawPath, m[1])
	return &to
}

// unescapedOnce is an address whose path the routes unescape: without its raw form
// they would do so once more to what is unescaped already.
func unescapedOnce(u *url.URL) *url.URL {
	if u.RawPath != "" || !strings.Contains(u.Path, "%") {
		return u
	}
	to := *u
	to.RawPath = u.EscapedPath()
	return &to
}

// twice is a parameter that is there in both its spellings; empty is none.
func twice(query url.Values) string {
	for name := range query {
		if other := camel(name); other != name && query.Has(other) {
			return other
		}
	}
	return ""
}

// soon bounds the time in which a caller takes an answer. front lifts it for the
// next one: a connection keeps it, and streams have their own.
func soon(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(quickTime)) // not every connection has one
}

// lingerTime is how long what is left of a body may take to come.
const lingerTime = 2 * time.Second

// linger bounds the wait for what an answered request has not sent yet: net/http
// reads it, and would hold the connection for as long as the caller likes.
func linger(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lingerTime)) // not every connection has one
}

func (s *Server) logPanic(where string, p any) {
	s.log.Error("panic", zap.String("in", where), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
}

func bindingOf(r *http.Request) string {
	if strings.HasSuffix(r.URL.Path, "/rpc") || atAgent(r) {
		return bindingRPC
	}
	return bindingREST
}

// serviceParameter returns the values of a header. The version may also come in
// the query.
func serviceParameter(r *http.Request, name string) []string {
	values := r.Header.Values(name)
	if name != "a2a-version" || len(values) > 0 {
		return values
	}
	for k, v := range r.URL.Query() {
		if strings.EqualFold(k, name) {
			return v
		}
	}
	return nil
}

// bounded returns the context of a request with the timeout that its caller allows in
// Grpc-Timeout, at most an hour. It removes the header from the request, because the
// gateway would apply it without that limit.
func bounded(r *http.Request) (context.Context, context.CancelFunc, error) {
	text := r.Header.Get("Grpc-Timeout")
	if text == "" {
		return r.Context(), func() {}, nil
	}
	r.Header.Del("Grpc-Timeout")
	units := map[byte]time.Duration{
		'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': 1,
	}
	unit, known := units[text[len(text)-1]]
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 32)
	if err != nil || !known || len(text) > 9 {
		return nil, nil, wire.Invalid("Grpc-Timeout", "must be up to eight digits and one of H, M, S, m, u, n")
	}
	if n == 0 || n > uint64(maxAllowed/unit) { //nolint:gosec // both positive
		return nil, nil, notAllowed(text)
	}
	ctx, cancel := context.WithTimeout(r.Context(), min(time.Duration(n)*unit, maxTime))
	return ctx, cancel, nil
}

// maxAllowed is the longest timeout that a caller may send: a year. A caller that wants
// no limit sends no timeout.
const maxAllowed = 365 * 24 * time.Hour

func notAllowed(text string) error {
	return wire.Invalid("Grpc-Timeout", fmt.Sprintf("is %.32s; it must be more than 0 and at most a year (8760H), leave it out for no limit", text))
}

// replyType is the media type of the answer: what the caller accepts, else what
// it sent, else what its path says.
func replyType(r *http.Request) string {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	sent, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // judged with the body
	switch {
	case strings.Contains(accept, wire.TypeA2A):
		return wire.TypeA2A
	case strings.Contains(accept, wire.TypeJSON):
		return wire.TypeJSON
	case sent == wire.TypeA2A, sent == wire.TypeJSON:
		return sent
	case strings.HasPrefix(r.URL.Path, "/team/v1/"), strings.Contains(accept, "text/event-stream"):
		return wire.TypeJSON // what refuses a stream is then read by all clients
	}
	return wire.TypeA2A
}

// fail answers with an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, st *status.Status) {
	s.failWith(w, r, st, wire.HTTPStatus(st))
}

// failWith answers with an error and a status of HTTP's own: routing knows more
// of them than the table.
func (s *Server) failWith(w http.ResponseWriter, r *http.Request, st *status.Status, httpStatus int) {
	s.log.Debug("refused", zap.String("path", r.URL.Path), zap.Int("status", httpStatus), zap.String("message", st.Message()))
	if _, read := r.Body.(*body); !read && r.ContentLength != 0 {
		w.Header().Set("Connection", "close") // what was not read is not waited for
	}
	render, media := wire.RESTError, replyType(r)
	switch {
	case bindingOf(r) == bindingRPC:
		render, media = rpcRefusal, wire.TypeJSON
	case isContract(r):
		render, media = wire.ContractError, wire.TypeJSON
	case restV03(r):
		render, media = a2av03.RESTError, wire.TypeJSON
	}
	b, err := render(st, httpStatus)
	if err != nil {
		s.log.Error("rendering an error", zap.Error(err))
	}
	writeError(w, st, httpStatus, media, b)
}

func writeError(w http.ResponseWriter, st *status.Status, httpStatus int, media string, b []byte) {
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Cache-Control", "no-store")
	if httpStatus == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="team-server"`)
	}
	if wait := wire.RetryAfter(st); wait > 0 {
		h.Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
	}
	soon(w)
	w.WriteHeader(httpStatus)
	_, _ = w.Write(b) // the caller may have left
}
