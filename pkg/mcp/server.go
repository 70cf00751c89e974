// Package mcp provides the tools of MCP servers to agents with a model.
package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

const (
	// StartTimeout is the default of Config.StartTimeout.
	StartTimeout = 10 * time.Second
	// listTimeout is the time limit for listing tools if an older list is known.
	listTimeout = 3 * time.Second
	// maxTools is the maximum number of tools of a server.
	maxTools = 1000
)

// Config configures a Server. Exactly one of Command and URL must be set.
type Config struct {
	// Name is the name of the server in the configuration, for errors. Required.
	Name string
	// Place is where the configuration has the server, such as team.yaml:12, for operators; "" if it is not known.
	Place string
	// Command is a program with its arguments. It is called over its standard input and output.
	Command []string
	// Dir is the working directory of the program; "" means that of this process.
	Dir string
	// Env holds the environment variables of the program. Besides them it gets only PATH and HOME.
	Env map[string]secret.Secret
	// URL is the address of a server that uses streamable HTTP.
	URL string
	// Bearer is the token sent with every request to URL; the zero value sends none.
	Bearer secret.Secret
	// Tokens are sent in place of Bearer; nil sends none. A request that is refused with HTTP 401 is sent once more,
	// with a new token.
	Tokens secret.Source
	// Headers are sent with every request to URL.
	Headers map[string]secret.Secret
	// HTTPClient makes the requests to URL; nil means a new client.
	HTTPClient *http.Client
	// Version is the version of MCP that is offered to the server; "" means the newest one.
	Version string
	// Prefix is put before the names of the tools, as models see them.
	Prefix string
	// Allow lists the tools to offer, by the server's names; nil means all.
	Allow []string
	// Effects declare what calling a tool twice means, by the server's names; "*" applies to all
	// others. Without a declaration, the annotations of the tool apply: read-only tools are safe,
	// idempotent tools are keyed, and all others are unsafe.
	Effects map[string]agent.Effect
	// Results says what models get of results that have structured content.
	Results Results
	// Resources says whether a server that has resources gets a tool of ours that reads them; nil means unless Allow
	// is set.
	Resources *bool
	// StartTimeout is the time limit for starting a server, or connecting to it, and listing its tools; 0 means
	// the constant StartTimeout.
	StartTimeout time.Duration
	// CallTimeout is the time limit for a call, counted anew from each progress that the server reports; 0 means
	// that of the caller.
	CallTimeout time.Duration
	// Elicit says who answers the questions that the server asks during calls. If it is nil, the server
	// is not offered to ask any.
	Elicit *Elicit
	// Log receives warnings and the standard error of the program; nil discards them.
	Log *zap.Logger
}

func (c *Config) validate() error {
	switch {
	case c.Name == "":
		return errors.New("name is missing")
	case len(c.Command) > 0 && c.URL != "":
		return fmt.Errorf("tool %q has a command and a url; keep one of them", c.Name)
	case len(c.Command) == 0 && c.URL == "":
		return fmt.Errorf("tool %q has neither a command nor a url; add one of them", c.Name)
	case c.URL != "" && !isAddress(c.URL):
		return fmt.Errorf("tool %q has a url that is not an http or https address; for example http://127.0.0.1:8000/mcp", c.Name)
	case c.Elicit != nil && c.Elicit.KeepOpen < 0:
		return fmt.Errorf("tool %q keeps calls open for a negative time; set Elicit.KeepOpen to 0 or more", c.Name)
	case c.StartTimeout < 0 || c.CallTimeout < 0:
		return fmt.Errorf("tool %q has a negative timeout; set StartTimeout and CallTimeout to 0 or more", c.Name)
	}
	return nil
}

// isAddress reports whether a text is an http or https URL with a host.
func isAddress(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Hostname() != "" && (u.Scheme == "http" || u.Scheme == "https")
}

// Server is a connection to an MCP server. A program that has exited is started again when it is
// needed. It is safe for concurrent use.
type Server struct {
	config   Config
	client   *mcp.Client
	progress progress
	known    []agent.Tool                  // nil until the server has listed its tools; guarded by mu
	newest   atomic.Pointer[program]       // the program that was started last; nil with a URL
	token    atomic.Pointer[secret.Secret] // that was sent last, of Config.Tokens

	ctx    context.Context // canceled by Close; ends all calls
	cancel context.CancelCauseFunc
	calls  sync.WaitGroup // calls in progress

	hurry   context.Context // canceled if programs that are being stopped must be killed at once
	noGrace context.CancelFunc

	mu     sync.Mutex
	live   *mcp.ClientSession // nil if there is no session; guarded by mu
	next   *connecting        // the session that is being made; nil if none is; guarded by mu
	asking *openCall          // the call that the server works on, and may ask about, or nil; guarded by mu
	closed bool               // guarded by mu
	wg     sync.WaitGroup     // goroutines that make and watch sessions
}

var _ agent.ToolSet = (*Server)(nil)

// Start starts a server, or connects to it, and lists its tools, within Config.StartTimeout. The error
// names the server. A program that has not started when ctx ends is killed. The caller must call Close or
// Shutdown when it no longer uses the server.
func Start(ctx context.Context, c Config) (*Server, error) {
	s, err := New(c)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, s.noGrace)()
	if _, err := s.Tools(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// New returns a server that is started, or connected to, when it is first used. The caller must call Close or
// Shutdown when it no longer uses the server.
func New(c Config) (*Server, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	s := &Server{config: c, progress: progress{limit: c.CallTimeout}}
	s.client = mcp.NewClient(&mcp.Implementation{Name: "team-server", Version: "1"}, s.options())
	if c.Elicit != nil {
		s.client.AddReceivingMiddleware(s.passQuestions)
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.hurry, s.noGrace = context.WithCancel(context.Background())
	return s, nil
}

// Name implements agent.ToolSet.
func (s *Server) Name() string { return s.config.Name }

// Known returns the tools as they were last listed; nil if the server has not listed them yet.
func (s *Server) Known() []agent.Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.known)
}

// Answered reports whether the server has listed its tools.
func (s *Server) Answered() bool { return s.Known() != nil }

// Tools implements agent.ToolSet. It lists the tools each time, because they may change. If the
// server does not answer within three seconds, it returns the tools that were last listed. If there is
// no older list, it waits for Config.StartTimeout, and a server that does not answer is an error.
func (s *Server) Tools(ctx context.Context) ([]agent.Tool, error) {
	known := s.Known()
	limit, late := listTimeout, errList
	if known == nil {
		limit, late = s.config.startTimeout(), errStart
	}
	listing, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	tools, err := s.list(listing)
	switch {
	case err != nil && known == nil:
		return nil, err
	case err != nil:
		s.config.Log.Warn("listing tools failed; using the previous list", zap.String("tool", s.config.Name), zap.Error(err))
		return known, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = tools
	return slices.Clone(tools), nil
}

// Shutdown closes the connection and stops the program as Close does, and kills it when ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.noGrace)()
	return s.Close()
}

// Close closes the connection and stops the program, with all processes that it has started and that have not left
// its process group. It gives the program a few seconds to exit. Calls in progress fail. It always returns nil.
func (s *Server) Close() error {
	s.mu.Lock()
	live := s.live
	s.live, s.closed = nil, true
	s.mu.Unlock()
	s.cancel(errClosed)
	s.calls.Wait()
	if live != nil {
		_ = live.Close() // the exit code of a program that was stopped does not matter
	}
	s.wg.Wait()
	s.noGrace()
	return nil
}

// Causes of contexts that this package ends.
var (
	errStart  = errors.New("no answer in the time for its start")
	errList   = errors.New("no list of tools in time")
	errClosed = errors.New("the server is closed")
)

// startTimeout returns the time limit for the start of the server.
func (c *Config) startTimeout() time.Duration { return cmp.Or(c.StartTimeout, StartTimeout) }

// connecting is a session that is being made.
type connecting struct {
	done chan struct{} // closed when live and err are set
	live *mcp.ClientSession
	err  error
}

// session returns the current session. It connects first if the server has no session. Concurrent callers wait for
// the same connection, which is also made if no caller waits for it any longer.
func (s *Server) session(ctx context.Context) (*mcp.ClientSession, error) {
	s.mu.Lock()
	live, next := s.live, s.next
	switch {
	case s.closed:
		s.mu.Unlock()
		return nil, s.unreachable(ctx, errClosed, outcome{})
	case live == nil && next == nil:
		next = &connecting{done: make(chan struct{})}
		s.next = next
		own := context.WithoutCancel(ctx)
		s.wg.Go(func() { s.establish(own, next) })
	}
	s.mu.Unlock()
	if live != nil {
		return live, nil
	}
	select {
	case <-next.done:
		return next.live, next.err
	case <-ctx.Done():
	}
	if errors.Is(context.Cause(ctx), errStart) { // which ends the connecting too, and that knows more
		<-next.done
		return next.live, next.err
	}
	return nil, s.unreachable(ctx, context.Cause(ctx), outcome{})
}

// establish makes the session next, within the time for a start, and watches it until it ends.
func (s *Server) establish(ctx context.Context, next *connecting) {
	x := &exchange{}
	ctx, cancel := context.WithTimeoutCause(observed(ctx, x), s.config.startTimeout(), errStart)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(s.ctx, func() { stop(errClosed) })()
	live, err := s.connect(ctx)
	s.mu.Lock()
	if err == nil && !s.closed {
		s.live = live
	}
	closed := s.closed
	s.mu.Unlock()
	if err == nil && closed {
		_ = live.Close() // nothing was sent
		err = errClosed
	}
	if next.live, next.err = live, err; err != nil {
		next.live, next.err = nil, s.unreachable(ctx, err, x.outcome())
	}
	s.mu.Lock()
	s.next = nil
	s.mu.Unlock()
	close(next.done)
	if err == nil {
		_ = live.Wait() // the calls in progress report the error
		s.drop(live)
	}
}

// connect makes a new session.
func (s *Server) connect(ctx context.Context) (*mcp.ClientSession, error) {
	transport := s.transport()
	live, err := s.client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: s.config.Version})
	s.newest.Store(nil)
	if p, ok := transport.(*program); ok {
		s.newest.Store(p)
	}
	return live, err
}

// drop discards a session that has ended, and its program.
func (s *Server) drop(old *mcp.ClientSession) {
	s.mu.Lock()
	if s.live == old {
		s.live = nil
	}
	s.mu.Unlock()
	_ = old.Close() // it has already ended
}

// transport returns a new transport to the server.
func (s *Server) transport() mcp.Transport {
	if s.config.URL != "" {
		return &mcp.StreamableClientTransport{Endpoint: s.config.URL, HTTPClient: s.httpClient(), DisableStandaloneSSE: true}
	}
	return s.start()
}
