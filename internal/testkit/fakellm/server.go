// Package fakellm implements a model server for tests. It supports OpenAI's chat
// completions, and the streaming modes of Anthropic's messages and Gemini's
// generateContent. It sends prepared answers and records every request. Like the
// providers, it rejects invalid conversations, such as a tool result without a call.
//
//	llm := fakellm.New(t)
//	llm.Script("writer-model", fakellm.Turn{Text: "Hello"}, fakellm.Turn{Status: 429})
//	m, err := openai.New(openai.Config{BaseURL: llm.URL, Name: "writer-model"})
//
// A model answers with its turns in order, then with its function, then from a script
// (with the model's name as the id of the agent). Requests for a model without any of
// these get 404.
package fakellm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/agentteams/team-server/pkg/model/scripted"
)

// Server is a running fake server. All methods are safe for concurrent use.
type Server struct {
	// URL is the base URL for OpenAI's API; it does not include /chat/completions.
	URL string
	// Root is the base URL for Anthropic's and Gemini's APIs.
	Root string

	http   *http.Server
	cancel context.CancelFunc
	served chan struct{}

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when anything below changes; guarded by mu
	models   map[string]*behavior
	requests []*Request
	running  int
	peak     int
	conns    map[net.Conn]http.ConnState
	calls    int
}

// behavior is how a model answers. It is guarded by Server.mu.
type behavior struct {
	turns  []Turn
	answer func(*Request) Turn
	script *scripted.Script
}

// TB is the part of testing.TB that New needs.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// New starts a server that is closed at the end of the test.
func New(tb TB) *Server {
	tb.Helper()
	s, err := Start()
	if err != nil {
		tb.Fatalf("starting the fake model server: %v", err)
	}
	tb.Cleanup(s.Close)
	return s
}

// Start starts a server on a free port of the loopback interface.
func Start() (*Server, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		URL: "http://" + l.Addr().String() + "/v1", Root: "http://" + l.Addr().String(), cancel: cancel, served: make(chan struct{}),
		changed: make(chan struct{}), models: map[string]*behavior{}, conns: map[net.Conn]http.ConnState{},
	}
	s.http = &http.Server{
		Handler: s, ConnState: s.connState, ReadHeaderTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go func() {
		defer close(s.served)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			cancel()
		}
	}()
	return s, nil
}

// Close aborts all responses, closes all connections and returns when no request is in progress. It
// may be called more than once.
func (s *Server) Close() {
	s.cancel()
	_ = s.http.Close()
	<-s.served
	_ = s.wait(context.Background(), func() bool { return s.running == 0 })
}

// Script appends turns to the ordered turns of a model.
func (s *Server) Script(model string, turns ...Turn) {
	s.change(func() { s.behavior(model).turns = append(s.behavior(model).turns, turns...) })
}

// Answer sets the function that makes the turns of a model after its ordered turns. It may be
// called concurrently.
func (s *Server) Answer(model string, f func(*Request) Turn) {
	s.change(func() { s.behavior(model).answer = f })
}

// Play makes models answer from a script.
func (s *Server) Play(script *scripted.Script) {
	s.change(func() {
		for _, model := range script.Agents() {
			s.behavior(model).script = script
		}
	})
}

// Requests returns the requests so far, for the named models or all models, in order of arrival.
// The result is a copy.
func (s *Server) Requests(models ...string) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record(models)
}

func (s *Server) record(models []string) []Request {
	var out []Request
	for _, r := range s.requests {
		if len(models) == 0 || slices.Contains(models, r.Model) {
			out = append(out, *r)
		}
	}
	return out
}

// WaitFor returns when wanted returns true for the requests of the named models, or of all models,
// or when ctx ends. wanted must not call methods of the server.
func (s *Server) WaitFor(ctx context.Context, wanted func([]Request) bool, models ...string) error {
	return s.wait(ctx, func() bool { return wanted(s.record(models)) })
}

// Peak returns the maximum number of requests that were answered concurrently.
func (s *Server) Peak() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peak
}

// Connections returns the number of open connections: those with a request in progress, and idle
// ones.
func (s *Server) Connections() (busy, idle int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connections()
}

func (s *Server) connections() (busy, idle int) {
	for _, state := range s.conns {
		if state == http.StateActive {
			busy++
		} else {
			idle++
		}
	}
	return busy, idle
}

// Quiet returns when no request is in progress and no connection is busy, or when ctx ends.
func (s *Server) Quiet(ctx context.Context) error {
	return s.wait(ctx, func() bool {
		busy, _ := s.connections()
		return busy == 0 && s.running == 0
	})
}

// wait calls is, with mu held, whenever something has changed, until it returns true or ctx ends.
func (s *Server) wait(ctx context.Context, is func() bool) error {
	for {
		s.mu.Lock()
		ok, changed := is(), s.changed
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// change calls f with mu held and wakes the callers of wait.
func (s *Server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) connState(c net.Conn, state http.ConnState) {
	s.change(func() {
		if state == http.StateClosed || state == http.StateHijacked {
			delete(s.conns, c)
			return
		}
		s.conns[c] = state
	})
}

// behavior returns the behavior of a model. The caller holds mu.
func (s *Server) behavior(model string) *behavior {
	b, ok := s.models[model]
	if !ok {
		b = &behavior{}
		s.models[model] = b
	}
	return b
}

// next returns the turn that answers r.
func (s *Server) next(r *Request) Turn {
	s.mu.Lock()
	b, known := s.models[r.Model]
	if !known {
		s.mu.Unlock()
		return Turn{Status: http.StatusNotFound, Code: "model_not_found", Message: fmt.Sprintf("The model `%s` does not exist or you do not have access to it.", r.Model)}
	}
	if len(b.turns) > 0 {
		defer s.mu.Unlock()
		t := b.turns[0]
		if !t.Forever {
			b.turns = b.turns[1:]
		}
		return t
	}
	answer, script := b.answer, b.script
	s.mu.Unlock()
	switch {
	case answer != nil:
		return answer(r)
	case script != nil:
		return play(script, r)
	}
	return Turn{Status: http.StatusBadRequest, Code: "out_of_turns", Message: fmt.Sprintf("fakellm: model %q was given no turn for request %d", r.Model, r.N)}
}

// play returns the turn that a script has for a request.
func play(script *scripted.Script, r *Request) Turn {
	a, err := script.Answer(r.modelRequest())
	if err != nil {
		return Turn{Status: http.StatusBadRequest, Code: "no_entry", Message: err.Error()}
	}
	t := Turn{Text: a.Text, Chunks: a.Chunks, Delay: a.Delay, Finish: a.FinishReason}
	for _, c := range a.ToolCalls {
		t.Calls = append(t.Calls, Call{ID: c.GetId(), Name: c.GetName(), Arguments: c.GetArguments()})
	}
	if f := a.Failure; f != nil {
		t.Status, t.Code, t.Message, t.RetryAfter = f.Status, f.Reason, f.Message, f.RetryAfter
	}
	return t
}
