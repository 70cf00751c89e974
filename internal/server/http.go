package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	stdlog "log" //nolint:depguard // net/http takes no other logger
	"mime"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/status"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/wire"
)

const cardPath = "/.well-known/agent-card.json"

// HTTPConfig configures the bindings over HTTP.
type HTTPConfig struct {
	// TLS returns the configuration of a listener that offers the given protocols of ALPN; nil means no TLS.
	TLS       func(protocols ...string) *tls.Config
	SignIns   func() []auth.SignIn
	Ready     func() error
	Version   string
	StallTime time.Duration
	Log       *zap.Logger
}

// httpAPI has the bindings over HTTP, REST and JSON-RPC, and the pages.
type httpAPI struct {
	config  HTTPConfig
	chain   *Chain
	table   *Table
	tasks   a2av1.A2AServiceClient // calls the A2A service
	origins origins
	pages   *pages
	open    map[string]bool // paths that need no key
	v03     map[string]unaryV03
	cards   cards
	log     *zap.Logger
	server  *http.Server
}

// NewHTTP returns the bindings over HTTP.
func NewHTTP(config HTTPConfig, chain *Chain, table *Table) (*httpAPI, error) {
	s := &httpAPI{
		config: config, chain: chain, table: table, tasks: a2av1.NewA2AServiceClient(table.conn()), origins: origins{chain.Authenticates()},
		open: openFiles(), v03: unaryMethodsV03(), log: config.Log,
	}
	var err error
	if s.pages, err = NewPages(PagesConfig{Monitor: table.Monitor != nil, SignIns: config.SignIns, Ready: config.Ready, Version: config.Version, Fail: s.failWith}); err != nil {
		return nil, err
	}
	s.server, err = s.newHTTP()
	return s, err
}

// Serve serves a listener until Stop is called.
func (s *httpAPI) Serve(l net.Listener) error {
	if s.server.TLSConfig != nil {
		return s.server.ServeTLS(l, "", "")
	}
	return s.server.Serve(l)
}

// Stop waits for running calls, but no longer than ctx.
func (s *httpAPI) Stop(ctx context.Context) {
	if err := s.server.Shutdown(ctx); err != nil {
		s.log.Warn("closed HTTP calls that did not end within the drain time", zap.Error(err))
		_ = s.server.Close() // the listener is closed already
	}
}

func (s *httpAPI) newHTTP() (*http.Server, error) {
	mux, err := s.newGateway()
	if err != nil {
		return nil, err
	}
	h := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.front(mux, w, r) }),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          connectionErrors(s.log),
		// net/http would answer OPTIONS * itself, without a key.
		DisableGeneralOptionsHandler: true,
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}
	if s.config.TLS != nil { // ReadHeaderTimeout limits the handshake, too
		h.TLSConfig = s.config.TLS("h2", "http/1.1")
	}
	return h, nil
}

// connectionLog returns a log for failures of connections, which any peer can cause: of each kind the first ten in a
// minute are logged, and then one in a thousand. All failed handshakes are one kind.
func connectionLog(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, time.Minute, 10, 1000)
	}))
}

// logHandshake logs a TLS handshake that has failed.
func logHandshake(log *zap.Logger, address, why string) {
	log.Warn("a TLS handshake failed", zap.String("address", address), zap.String("error", why))
}

// connectionErrors returns a logger for what net/http reports, for example failed TLS handshakes.
func connectionErrors(log *zap.Logger) *stdlog.Logger {
	log = connectionLog(log)
	return stdlog.New(lineWriter(func(line string) {
		if from, failed := strings.CutPrefix(line, "http: TLS handshake error from "); failed {
			address, why, _ := strings.Cut(from, ": ")
			logHandshake(log, address, why)
		} else {
			log.Warn("net/http reports a failure", zap.String("report", line))
		}
	}), "", 0)
}

// lineWriter calls itself with each line, without the newline.
type lineWriter func(line string)

func (w lineWriter) Write(b []byte) (int, error) {
	w(strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}

// front is the first handler of every request. It recovers from panics. Before routing, and
// before the body is read, it sets the request ID, the caller and the timeout, and rejects
// requests that fail checkHost and callers without a valid key.
func (s *httpAPI) front(next http.Handler, w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	defer readRest(w, r)
	in := s.chain.newInbound(bindingOf(r), func(name string) []string { return serviceParameter(r, name) })
	in.record = s.chain.newRecord()
	w, finish := s.chain.recordHTTP(w, r, in)
	defer finish()
	if in.settings.GetPublicUrl() == "" {
		in.base = forwarded(in.settings.Proxies, r)
	}
	in.addr = callerAddr(in.settings.Proxies, r.RemoteAddr, r.Header.Values("X-Forwarded-For"))
	open := s.isOpen(r)
	w.Header().Set("X-Request-Id", in.id)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.TLS != nil && !isLoopback(hostName(r.Host)) { // other servers on loopback may have no TLS
		w.Header().Set("Strict-Transport-Security", "max-age=31536000")
	}
	if uris := in.activated(); uris != "" {
		w.Header().Set("A2A-Extensions", uris)
	}
	refuse := func(st *status.Status) {
		in.record.setRefusal(st)
		s.fail(w, r, st)
	}
	defer func() {
		if p := recover(); p != nil {
			s.chain.logPanic(r.URL.Path, p)
			refuse(wire.Status(errors.New("panic")))
		}
	}()
	if err := s.origins.checkHost(in.settings, r, open); err != nil {
		refuse(wire.Status(err))
		return
	}
	if s.origins.crossOrigin(in.settings, w, r) {
		return
	}
	in.tls = r.TLS
	in.authorization = r.Header.Values("Authorization")
	caller, err := s.chain.identify(in)
	if err != nil && !open {
		s.chain.logRefusal(in, err)
		s.chain.recordSignIn(in, err)
		s.chain.signInRefused(r.Context(), err)
		refuse(wire.Status(err))
		return
	}
	if err == nil && !open && s.chain.Authenticates() && len(in.authorization) == 0 { // by its certificate
		if err := s.origins.checkPage(in.settings, r); err != nil {
			refuse(wire.Status(err))
			return
		}
	}
	if err == nil {
		in.caller = &caller
	}
	if !open && !stopsWork(r) {
		err := s.chain.checkCalls(in)
		if err == nil {
			err = s.chain.countRequest(in)
		}
		if err != nil {
			refuse(status.Convert(err))
			return
		}
	}
	if !open {
		in.held = s.chain.heldBy(in, stopsWork(r) && r.ContentLength >= 0 && r.ContentLength <= inflight.Small)
		defer in.held.release()
	}
	ctx, cancel, err := bounded(r)
	if err != nil {
		refuse(wire.Status(err))
		return
	}
	defer cancel()
	r.Header["Accept"] = []string{replyType(r)}
	routed := r.WithContext(withInbound(ctx, in))
	if open && r.ContentLength != 0 {
		closeUnread(w, r)
		routed.Body, routed.ContentLength = http.NoBody, 0
	}
	routed.URL = urlV03(escapedURL(singleTenant(urlRPC(r, in))), in)
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

// limitWrite sets the deadline for writing the answer. front clears it for the next request
// on the connection; streams set their own.
func limitWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(quickTime)) // some connections have no deadlines
}

// lingerTime is the timeout for the rest of a body after its request has been answered.
const lingerTime = 2 * time.Second

// closeUnread closes a connection with HTTP/1.1 after the answer, because the body of the request is not read. With
// HTTP/2 this would end the other requests of the connection.
func closeUnread(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}

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

func bindingOf(r *http.Request) string {
	if _, ok := rpcAt(r); ok || strings.HasSuffix(r.URL.Path, "/rpc") {
		return bindingRPC
	}
	return bindingREST
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
	return wire.Invalid("Grpc-Timeout", fmt.Sprintf("is %.32s; it must be more than 0 and at most a year (8760H); omit it for no limit", text))
}

// replyType returns the media type of the answer: the one that the caller accepts, else
// that of its body, else the one of the path.
func replyType(r *http.Request) string {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	sent, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // checked when the body is read
	switch {
	case strings.Contains(accept, wire.TypeA2A):
		return wire.TypeA2A
	case strings.Contains(accept, wire.TypeJSON):
		return wire.TypeJSON
	case sent == wire.TypeA2A, sent == wire.TypeJSON:
		return sent
	case strings.HasPrefix(r.URL.Path, "/team/v1/"), strings.Contains(accept, "text/event-stream"):
		return wire.TypeJSON // all clients of streams can read an error in it
	}
	return wire.TypeA2A
}

// fail answers with an error.
func (s *httpAPI) fail(w http.ResponseWriter, r *http.Request, st *status.Status) {
	s.failWith(w, r, st, wire.HTTPStatus(st))
}

// failWith answers with an error and the given HTTP status. It is for errors of routing,
// whose statuses wire.HTTPStatus does not return.
func (s *httpAPI) failWith(w http.ResponseWriter, r *http.Request, st *status.Status, httpStatus int) {
	s.log.Debug("refused", zap.String("path", r.URL.Path), zap.Int("status", httpStatus), zap.String("message", st.Message()))
	inboundOf(r.Context()).record.setRefusal(st)
	if _, read := r.Body.(*body); !read && r.ContentLength != 0 {
		closeUnread(w, r)
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
	limitWrite(w)
	w.WriteHeader(httpStatus)
	_, _ = w.Write(b) // the caller may have disconnected
}
