// Package httpapi has the bindings over HTTP: REST, JSON-RPC and those of A2A 0.3, with the cards, the Team Monitor and the
// pages. A request passes front, which checks all that needs no body; then its route reads the body and calls a service.
package httpapi

import (
	"crypto/tls"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/server/mcpdoor"
	"github.com/agentteams/team-server/internal/server/openai"
	"github.com/agentteams/team-server/internal/server/service"
	"github.com/agentteams/team-server/internal/wire"
)

const cardPath = "/.well-known/agent-card.json"

// Config configures the bindings over HTTP.
type Config struct {
	// TLS returns the configuration of a listener that offers the given protocols of ALPN; nil means no TLS.
	TLS       func(protocols ...string) *tls.Config
	SignIns   func() []auth.SignIn
	Ready     func() error
	Version   string
	StallTime time.Duration
	// OpenAI is the door for clients of OpenAI's API; nil serves none.
	OpenAI *openai.Door
	// MCP serves MCP; nil serves none.
	MCP *mcpdoor.Door
	Log *zap.Logger
}

// API has the bindings over HTTP, REST and JSON-RPC, and the pages.
type API struct {
	config  Config
	chain   *call.Chain
	table   *service.Table
	tasks   a2av1.A2AServiceClient // calls the A2A service
	origins origins
	pages   *pages
	open    map[string]bool // paths that need no key
	v03     map[string]unaryV03
	cards   cards
	log     *zap.Logger
	server  *http.Server
}

func (c *Config) bindingOf(r *http.Request) string {
	switch {
	case c.isMCP(r):
		return call.MCP
	case c.OpenAI != nil && openai.Serves(r.URL.Path):
		return call.OpenAI
	}
	if _, ok := rpcAt(r); ok || strings.HasSuffix(r.URL.Path, "/rpc") {
		return call.JSONRPC
	}
	return call.REST
}

// private is the Cache-Control of an answer for one caller.
const private = "private, no-store"

// write sends an answer with status 200.
func write(w http.ResponseWriter, media, cache string, b []byte) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", cache)
	call.LimitWrite(w)
	_, _ = w.Write(b) // the caller may have disconnected
}

// closeUnread closes a connection with HTTP/1.1 after the answer, because the body of the request is not read. With
// HTTP/2 this would end the other requests of the connection.
func closeUnread(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
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
func (s *API) fail(w http.ResponseWriter, r *http.Request, st *status.Status) {
	s.failWith(w, r, st, wire.HTTPStatus(st))
}

// failWith answers with an error and the given HTTP status. It is for errors of routing,
// whose statuses wire.HTTPStatus does not return.
func (s *API) failWith(w http.ResponseWriter, r *http.Request, st *status.Status, httpStatus int) {
	s.log.Debug("refused", zap.String("path", r.URL.Path), zap.Int("status", httpStatus), zap.String("message", st.Message()))
	call.InboundOf(r.Context()).Record.SetRefusal(st)
	if _, read := r.Body.(*body); !read && r.ContentLength != 0 {
		closeUnread(w, r)
	}
	binding := s.config.bindingOf(r)
	if binding == call.OpenAI {
		openai.Refuse(w, st, httpStatus)
		return
	}
	render, media := wire.RESTError, replyType(r)
	switch {
	case binding == call.MCP:
		render, media = rpcRefusal, wire.TypeJSON
		s.config.MCP.Challenge(w.Header(), r, httpStatus)
	case binding == call.JSONRPC:
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
	if httpStatus == http.StatusUnauthorized && h.Get("WWW-Authenticate") == "" {
		h.Set("WWW-Authenticate", `Bearer realm="team-server"`)
	}
	if wait := wire.RetryAfter(st); wait > 0 {
		h.Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
	}
	call.LimitWrite(w)
	w.WriteHeader(httpStatus)
	_, _ = w.Write(b) // the caller may have disconnected
}

type route struct {
	methods string
	path    string
	handle  runtime.HandlerFunc
}

// rpcRefusal renders an error that occurs before a request is read, when its id is not
// known yet.
func rpcRefusal(st *status.Status, _ int) ([]byte, error) {
	e := wire.RPCErrorOf(st)
	if st.Code() == codes.Unimplemented {
		e.Code = wire.RPCInvalidRequest
	}
	return wire.RPCFailure([]byte("null"), e)
}

// contractBase is the path prefix of the contract calls: calls of the same services whose
// JSON has another shape (docs/collaborations.md).
const contractBase = "/team/v1/contract/"

func isContract(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, contractBase) }

// pathV03 matches the path of a call in 0.3.
var pathV03 = regexp.MustCompile(`^(/[^/]+)?/v1/(message:|tasks|card)`)

// restV03 reports whether the request has a path of 0.3.
func restV03(r *http.Request) bool { return pathV03.MatchString(r.URL.Path) }
