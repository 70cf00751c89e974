// Package fakellm is a model server for tests: it speaks OpenAI's chat
// completions, plain and streamed, and streamed Anthropic's messages and Gemini's
// contents; it answers what it was told, and keeps a record of every request.
// Like the providers it refuses conversations that make no sense, such as a
// tool's message that answers no call.
//
//	llm := fakellm.New(t)
//	llm.Script("writer-model", fakellm.Turn{Text: "Hello"}, fakellm.Turn{Status: 429})
//	m, err := openai.New(openai.Config{BaseURL: llm.URL, Name: "writer-model"})
//
// A model answers with its ordered turns, then with its function, then from a
// script file (where the model's name is the key). A model that has none of
// these is unknown: 404.
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

// Server is a running fake. All methods are safe for concurrent use.
type Server struct {
	// URL is the base URL for OpenAI's API, up to and without /chat/completions.
	URL string
	// Root is the base URL for Anthropic's and Gemini's.
	Root string

	http   *http.Server
	cancel context.CancelFunc
	served chan struct{}

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when anything below changes; guarded by mu
	models   map[string]*behaviour
	requests []*Request
	running  int
	peak     int
	conns    map[net.Conn]http.ConnState
	calls    int
}

// behaviour is what a model answers. Guarded by Server.mu.
type behaviour struct {
	turns  []Turn
	answer func(*Request) Turn
	script *scripted.Script
}

// TB is what New needs of a test.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// New starts a server that stops with the test.
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
		changed: make(chan struct{}), models: map[string]*behaviour{}, conns: map[net.Conn]http.ConnState{},
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

// Close ends what is answered, closes all connections and returns when no
// request is at work any more. It may be called again.
func (s *Server) Close() {
	s.cancel()
	_ = s.http.Close()
	<-s.served
	_ = s.wait(context.Background(), func() bool { return s.running == 0 })
}

// Script adds turns to those that a model answers in order.
func (s *Server) Script(model string, turns ...Turn) {
	s.change(func() { s.behaviour(model).turns = append(s.behaviour(model).turns, turns...) })
}

// Answer has a model's further turns made by a function; it may be called at
// the same time for several requests.
func (s *Server) Answer(model string, f func(*Request) Turn) {
	s.change(func() { s.behaviour(model).answer = f })
}

// Play has models answer from the file of a scripted model.
func (s *Server) Play(script *scripted.Script) {
	s.change(func() {
		for _, model := range script.Agents() {
			s.behaviour(model).script = script
		}
	})
}

// Requests returns the record so far, of the named models or of all, in order
// of arrival. What it returns does not change.
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

// WaitFor returns when the record of the named models, or of all, is as wanted,
// or when ctx ends. wanted must not call the server.
func (s *Server) WaitFor(ctx context.Context, wanted func([]Request) bool, models ...string) error {
	return s.wait(ctx, func() bool { return wanted(s.record(models)) })
}

// Peak returns the most requests that were answered at the same time.
func (s *Server) Peak() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peak
}

// Connections returns how many connections are open: busy ones have a request,
// idle ones are kept for the next.
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

// Quiet returns when no request is at work and no connection busy, or when ctx ends.
func (s *Server) Quiet(ctx context.Context) error {
	return s.wait(ctx, func() bool {
		busy, _ := s.connections()
		return busy == 0 && s.running == 0
	})
}

// wait returns when is, called under mu, is true.
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

// change makes a change under mu and wakes what waits for one.
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

// behaviour returns what a model answers. Called under mu.
func (s *Server) behaviour(model string) *behaviour {
	b, ok := s.models[model]
	if !ok {
		b = &behaviour{}
		s.models[model] = b
	}
	return b
}

// next takes the turn that answers r.
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

// play is the turn that a script says.
func play(script *scripted.Script, r *Request) Turn {
	a, err := script.Answer(r.asked())
	if err != nil {
		return Turn{Status: http.StatusBadRequest, Code: "no_entry", Message: err.Error()}
	}
	t := Turn{Text: a.Text, Chunks: a.Chunks, Delay: a.Delay}
	for _, c := range a.ToolCalls {
		t.Calls = append(t.Calls, Call{ID: c.GetId(), Name: c.GetName(), Arguments: c.GetArguments()})
	}
	if f := a.Failure; f != nil {
		t.Status, t.Code, t.Message, t.RetryAfter = f.Status, f.Reason, f.Message, f.RetryAfter
	}
	return t
}
