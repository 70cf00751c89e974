package httpapi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/status"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/server/conn"
	"github.com/agentteams/team-server/internal/server/service"
	"github.com/agentteams/team-server/internal/wire"
)

// New returns the bindings over HTTP.
func New(config Config, chain *call.Chain, table *service.Table) (*API, error) {
	s := &API{
		config: config, chain: chain, table: table, tasks: a2av1.NewA2AServiceClient(table.Conn()), origins: origins{chain.Authenticates()},
		open: openPaths(config), v03: unaryMethodsV03(), log: config.Log,
	}
	var err error
	if s.pages, err = newPages(pagesConfig{Monitor: table.Monitor != nil, SignIns: config.SignIns, Ready: config.Ready, Version: config.Version, Fail: s.failWith}); err != nil {
		return nil, err
	}
	s.server, err = s.newHTTP()
	return s, err
}

// Serve serves a listener until Stop is called.
func (s *API) Serve(l net.Listener) error {
	if s.server.TLSConfig != nil {
		return s.server.ServeTLS(l, "", "")
	}
	return s.server.Serve(l)
}

// Stop waits for running calls, but no longer than ctx.
func (s *API) Stop(ctx context.Context) {
	if err := s.server.Shutdown(ctx); err != nil {
		s.log.Warn("closed HTTP calls that did not end within the drain time", zap.Error(err))
		_ = s.server.Close() // the listener is closed already
	}
}

func (s *API) newHTTP() (*http.Server, error) {
	mux, err := s.newGateway()
	if err != nil {
		return nil, err
	}
	h := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.front(mux, w, r) }),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    conn.MaxHeader,
		ErrorLog:          conn.ConnectionErrors(s.log),
		// net/http would answer OPTIONS * itself, without a key.
		DisableGeneralOptionsHandler: true,
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: conn.MaxStreams},
	}
	if s.config.TLS != nil { // ReadHeaderTimeout limits the handshake, too
		h.TLSConfig = s.config.TLS("h2", "http/1.1")
	}
	return h, nil
}

// front is the first handler of every request. It recovers from panics. Before routing, and
// before the body is read, it sets the request ID, the caller and the timeout, and rejects
// requests that fail checkHost and callers without a valid key.
func (s *API) front(next http.Handler, w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	defer readRest(w, r)
	in := s.chain.NewInbound(s.config.bindingOf(r), func(name string) []string { return serviceParameter(r, name) })
	w, finish := s.recordHTTP(w, r, in)
	defer finish()
	if in.Settings.GetPublicUrl() == "" {
		in.Base = call.Forwarded(in.Settings.Proxies, r)
	}
	in.Addr = call.CallerAddr(in.Settings.Proxies, r.RemoteAddr, r.Header.Values("X-Forwarded-For"))
	open := s.isOpen(r)
	w.Header().Set("X-Request-Id", in.ID)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.TLS != nil && !isLoopback(hostName(r.Host)) { // other servers on loopback may have no TLS
		w.Header().Set("Strict-Transport-Security", "max-age=31536000")
	}
	if uris := in.Activated(); uris != "" {
		w.Header().Set("A2A-Extensions", uris)
	}
	refuse := func(st *status.Status) {
		in.Record.SetRefusal(st)
		s.fail(w, r.WithContext(call.WithInbound(r.Context(), in)), st)
	}
	defer func() {
		if p := recover(); p != nil {
			s.chain.LogPanic(r.URL.Path, p)
			refuse(wire.Status(errors.New("panic")))
		}
	}()
	if err := s.origins.checkHost(in.Settings, r, open); err != nil {
		refuse(wire.Status(err))
		return
	}
	if s.origins.crossOrigin(in.Settings, w, r) {
		return
	}
	in.TLS = r.TLS
	in.Authorization = r.Header.Values("Authorization")
	if err := s.chain.Identify(r.Context(), in, open); err != nil {
		refuse(wire.Status(err))
		return
	}
	if !open {
		if err := s.admit(in, r); err != nil {
			refuse(wire.Status(err))
			return
		}
		defer in.Held.Release()
	}
	ctx, cancel, err := bounded(r)
	if err != nil {
		refuse(wire.Status(err))
		return
	}
	defer cancel()
	r.Header["Accept"] = []string{replyType(r)}
	routed := r.WithContext(call.WithInbound(ctx, in))
	if open && r.ContentLength != 0 {
		closeUnread(w, r)
		routed.Body, routed.ContentLength = http.NoBody, 0
	}
	if !s.config.isMCP(r) {
		routed.URL = urlV03(escapedURL(singleTenant(urlRPC(r, in))), in)
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil { // r.URL.Query drops what it cannot parse
		refuse(wire.Status(wire.Invalid("", "has a malformed query")))
		return
	}
	if name := duplicateParameter(query); name != "" {
		refuse(wire.Status(wire.Invalid(name, "is given in both of its spellings; use one")))
		return
	}
	if answersAsGet(r) {
		routed.Method = http.MethodGet
		routed.Header.Del("Range") // only GET supports ranges
	}
	next.ServeHTTP(w, routed)
}

// admit counts a request that needs a key, and rejects one that a page of another site made a browser send.
func (s *API) admit(in *call.Inbound, r *http.Request) error {
	if s.chain.Authenticates() && len(in.Authorization) == 0 { // the caller has shown its certificate
		if err := s.origins.checkPage(in.Settings, r); err != nil {
			return err
		}
	}
	if !stopsAt(r) {
		if err := s.chain.Count(in); err != nil {
			return err
		}
	}
	s.chain.Hold(in, stopsAt(r) && r.ContentLength >= 0 && r.ContentLength <= inflight.Small)
	return nil
}

// twoSegments matches a path below an agent whose first two segments may both be the
// tenant.
var twoSegments = regexp.MustCompile(`^(/[^/]+)(/[^/]+)(?:/message:|/tasks(?:/|$)|/extendedAgentCard$|/\.well-known/|/v1/)`)

// singleTenant returns the URL with one of two equal tenants at the start of its path
// removed. Clients send two if they add the tenant to an interface URL that already ends
// with it.
func singleTenant(u *url.URL) *url.URL {
	m := twoSegments.FindStringSubmatch(u.Path)
	if m == nil || m[1] != m[2] {
		return u
	}
	to := *u
	to.Path, to.RawPath = strings.TrimPrefix(u.Path, m[1]), strings.TrimPrefix(u.RawPath, m[1])
	return &to
}

// escapedURL returns the URL with its escaped path in RawPath. The gateway unescapes
// RawPath; if it is empty, it would unescape Path a second time.
func escapedURL(u *url.URL) *url.URL {
	if u.RawPath != "" || !strings.Contains(u.Path, "%") {
		return u
	}
	to := *u
	to.RawPath = u.EscapedPath()
	return &to
}

// duplicateParameter returns the JSON name of a parameter that is given in both of its
// spellings, such as page_size and pageSize. It returns "" if no parameter is duplicated.
func duplicateParameter(query url.Values) string {
	for name := range query {
		if other := camel(name); other != name && query.Has(other) {
			return other
		}
	}
	return ""
}

// lingerTime is the timeout for the rest of a body after its request has been answered.
const lingerTime = 2 * time.Second

// lingerBytes is how much of the rest of a body is read.
const lingerBytes = 256 << 10

// readRest reads the rest of the request's body before the answer ends, within lingerTime. Over HTTP/1.1 net/http does
// so itself, and would otherwise hold the connection as long as the client likes. Over HTTP/2 it would reset the
// stream with NO_ERROR (RFC 9113, section 8.1), which curl before 8.0 takes for a failure of the answer.
func readRest(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lingerTime)) // some connections have no deadlines
	if r.ProtoMajor == 2 && r.Header.Get("Expect") == "" {                        // reading would send 100 Continue
		_, _ = io.CopyN(io.Discard, r.Body, lingerBytes) // a body that ends early or stalls is no failure of the answer
	}
}

// serviceParameter returns the values of a header. A2A-Version may be a query parameter
// instead.
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
	if n == 0 || n > uint64(call.MaxAllowed/unit) { //nolint:gosec // both positive
		return nil, nil, call.NotAllowed(text)
	}
	ctx, cancel := context.WithTimeout(r.Context(), min(time.Duration(n)*unit, call.MaxTime))
	return ctx, cancel, nil
}
