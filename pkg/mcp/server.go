// Package mcp offers the tools of MCP servers to agents with a model.
package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// StartTimeout bounds the start of a server with its list of tools.
	StartTimeout = 10 * time.Second
	// listTimeout bounds the list of tools where an older one is known.
	listTimeout = 3 * time.Second
	// maxTools is how many tools a server may have.
	maxTools = 1000
)

// Config is what a server is made of: a program that is started, or an address.
type Config struct {
	// Name of the server in the configuration; errors name it. Required.
	Name string
	// Command is a program and its arguments, spoken to over its standard input
	// and output. Or URL.
	Command []string
	// Dir is the program's working folder; "" is this process' own.
	Dir string
	// Env are the program's variables besides PATH and HOME; it gets no others.
	Env map[string]string
	// URL is the address of a server that speaks streamable HTTP.
	URL string
	// Bearer is sent with every request to URL; "" sends none.
	Bearer string
	// HTTPClient makes the calls to URL; nil is a client of its own.
	HTTPClient *http.Client
	// Allow are the tools that are offered, as the server names them; nil is all.
	Allow []string
	// Effects say what calling a tool twice means, by the server's names; "*" is
	// all others. Without it counts what the tool says of itself: one that only
	// reads is safe, one that is idempotent is keyed, and any other is unsafe.
	Effects map[string]agent.Effect
	// Log gets what the program writes to its standard error; nil is none.
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
	}
	return nil
}

// Server is an MCP server that is spoken to. A program that has ended is started
// again with the next use. Safe for concurrent use.
type Server struct {
	config Config
	client *mcp.Client
	known  []agent.Tool            // guarded by mu
	newest atomic.Pointer[program] // the program started last; nil with a URL

	ctx    context.Context // of all calls
	cancel context.CancelCauseFunc
	calls  sync.WaitGroup // under way

	mu     sync.Mutex
	live   *mcp.ClientSession // nil: there is none; guarded by mu
	closed bool               // guarded by mu
	wg     sync.WaitGroup     // of those who watch sessions
}

var _ agent.ToolSet = (*Server)(nil)

// Start starts a server, or connects to it, and reads its list of tools, within
// StartTimeout. The error names the server. Close it when nothing uses it any more.
func Start(ctx context.Context, c Config) (*Server, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	s := &Server{config: c, client: mcp.NewClient(
		&mcp.Implementation{Name: "team-server", Version: "1"}, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}},
	)}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	ctx, cancel := context.WithTimeoutCause(ctx, StartTimeout, errStart)
	defer cancel()
	tools, err := s.list(ctx)
	if err == nil {
		err = s.missing(tools)
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	s.known = tools
	return s, nil
}

// Name implements agent.ToolSet.
func (s *Server) Name() string { return s.config.Name }

// Known returns the tools as they were when the server was asked last.
func (s *Server) Known() []agent.Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.known)
}

// Tools implements agent.ToolSet: the server is asked each time, as its list may
// change. When it does not answer in three seconds the tools are those known before.
func (s *Server) Tools(ctx context.Context) ([]agent.Tool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, errStart)
	defer cancel()
	tools, err := s.list(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.config.Log.Warn("the tools are those known before", zap.String("tool", s.config.Name), zap.Error(err))
		return slices.Clone(s.known), nil
	}
	s.known = tools
	return slices.Clone(tools), nil
}

// Close ends the connection, and the program. Calls that are under way end with
// an error.
func (s *Server) Close() error {
	s.mu.Lock()
	live := s.live
	s.live, s.closed = nil, true
	s.mu.Unlock()
	s.cancel(errClosed)
	s.calls.Wait()
	if live != nil {
		_ = live.Close() // how a program ends that is not needed any more is its own business
	}
	s.wg.Wait()
	return nil
}

var (
	errStart  = errors.New("it did not answer in time")
	errClosed = errors.New("closed")
)

// session returns the connection, made anew where there is none. Those who come
// together wait for the same one.
func (s *Server) session(ctx context.Context) (*mcp.ClientSession, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errClosed
	case s.live != nil:
		return s.live, nil
	}
	transport := s.transport()
	live, err := s.client.Connect(ctx, transport, nil)
	s.newest.Store(nil)
	if p, ok := transport.(*program); ok {
		s.newest.Store(p)
	}
	if err != nil {
		return nil, err
	}
	s.live = live
	s.wg.Go(func() {
		_ = live.Wait() // why it ended is told to those whose calls it ends
		s.drop(live)
	})
	return live, nil
}

// drop forgets a connection that has ended, and its program.
func (s *Server) drop(old *mcp.ClientSession) {
	s.mu.Lock()
	if s.live == old {
		s.live = nil
	}
	s.mu.Unlock()
	_ = old.Close() // it has ended
}

// transport says how a connection is made.
func (s *Server) transport() mcp.Transport {
	if s.config.URL != "" {
		return &mcp.StreamableClientTransport{Endpoint: s.config.URL, HTTPClient: s.httpClient(), DisableStandaloneSSE: true}
	}
	return s.start()
}
