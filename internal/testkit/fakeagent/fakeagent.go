// Package fakeagent provides a scripted remote agent for tests. It listens on 127.0.0.1 and
// serves A2A with gRPC, JSON-RPC, REST and a card, and the Agent service. It follows its
// script and records the requests.
package fakeagent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Config configures an agent. The agent of the zero value echoes messages.
type Config struct {
	// Turns are played in order, one for each message. After the last one, Default is
	// played for each message.
	Turns   []Turn
	Default Turn
	// Skills are the skills in the card and the info.
	Skills []*teamv1.Skill
	// Agent answers Info and HealthCheck if it is set. Its context has the depth of nesting
	// from the call.
	Agent agent.Agent
	// Bindings are the bindings in the card, in order; the default is GRPC, JSONRPC,
	// HTTP+JSON.
	Bindings []string
	// Version is the protocol version in the card; the default is 1.0.
	Version string
	// Tenant is the tenant of the interfaces in the card.
	Tenant string
	// Token is the bearer token that calls must present; "" for none. The card needs no
	// token.
	Token string
	// Extensions are those in the card.
	Extensions []*a2av1.AgentExtension
	// Card modifies the card before it is served.
	Card func(*a2av1.AgentCard)
	// NoStream, NoCancel and NoHealth turn off streams, canceling, and HealthCheck of the
	// Agent service.
	NoStream, NoCancel, NoHealth bool
	// Streams is the error that A2A streams return although the card offers them.
	Streams error
	// Old makes the agent speak only A2A 0.3, over JSON-RPC and REST, with a card of that
	// version.
	Old bool
	// TLS configures both servers; nil: no TLS.
	TLS *tls.Config
	// Forgetful makes the agent treat a repeated message as a new one.
	Forgetful bool
}

// Request is a call that the agent received.
type Request struct {
	Method string // the name of the RPC for any binding; "Card" for the card
	Body   proto.Message
	Header map[string][]string // names in lower case
}

// Agent is a running fake agent. Its methods are safe for concurrent use.
type Agent struct {
	cfg Config

	mu       sync.Mutex
	requests []Request        // guarded by mu
	changed  chan struct{}    // closed at each request; guarded by mu
	tasks    map[string]*task // by id; guarded by mu
	keys     map[string]*task // by key; guarded by mu
	played   int              // turns so far; guarded by mu
	server   *server          // nil while down; guarded by mu

	grpcAddr, httpAddr string
}

// server is the running part of an Agent.
type server struct {
	grpc *grpc.Server
	http *http.Server
	stop context.CancelCauseFunc
	ctx  context.Context //nolint:containedctx // ends the tasks
	work sync.WaitGroup
}

// New starts an agent. It is stopped when the test ends.
func New(t testing.TB, cfg Config) *Agent {
	t.Helper()
	a := &Agent{cfg: cfg, changed: make(chan struct{}), tasks: map[string]*task{}, keys: map[string]*task{}}
	if err := a.Up(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Down)
	return a
}

// GRPC returns the address of the gRPC services.
func (a *Agent) GRPC() string { return a.grpcAddr }

// URL returns the base URL of HTTP. The card is below it, at the well-known path.
func (a *Agent) URL() string {
	if a.cfg.TLS != nil {
		return "https://" + a.httpAddr
	}
	return "http://" + a.httpAddr
}

// Up starts the agent at the address it had before.
func (a *Agent) Up() error {
	grpcListener, err := listen(a.grpcAddr)
	if err != nil {
		return err
	}
	httpListener, err := listen(a.httpAddr)
	if err != nil {
		return errors.Join(err, grpcListener.Close())
	}
	a.grpcAddr, a.httpAddr = grpcListener.Addr().String(), httpListener.Addr().String()
	var options []grpc.ServerOption
	if a.cfg.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(a.cfg.TLS)))
		httpListener = tls.NewListener(httpListener, a.cfg.TLS)
	}
	s := &server{grpc: grpc.NewServer(options...), http: &http.Server{Handler: a.handler(), ReadHeaderTimeout: 10 * time.Second}}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	a2av1.RegisterA2AServiceServer(s.grpc, a2aService{agent: a})
	teamv1.RegisterAgentServiceServer(s.grpc, agentService{agent: a})
	healthpb.RegisterHealthServer(s.grpc, health.NewServer())
	s.work.Go(func() { _ = s.grpc.Serve(grpcListener) })
	s.work.Go(func() { _ = s.http.Serve(httpListener) })
	a.mu.Lock()
	defer a.mu.Unlock()
	a.server = s
	return nil
}

func listen(addr string) (net.Listener, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	return l, nil
}

// Down stops the agent and waits for its goroutines. Its tasks are lost.
func (a *Agent) Down() {
	a.mu.Lock()
	s := a.server
	a.server = nil
	a.tasks, a.keys = map[string]*task{}, map[string]*task{}
	a.mu.Unlock()
	if s == nil {
		return
	}
	s.stop(errors.New("the agent is down"))
	s.grpc.Stop()
	_ = s.http.Close()
	s.work.Wait()
}

// Requests returns the recorded calls of a method, or of all methods for "".
func (a *Agent) Requests(method string) []Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of(method)
}

func (a *Agent) of(method string) []Request {
	return slices.DeleteFunc(slices.Clone(a.requests), func(r Request) bool { return method != "" && r.Method != method })
}

// Await waits until a method has been called n times, and returns the calls.
func (a *Agent) Await(t testing.TB, method string, n int) []Request {
	t.Helper()
	timeout := time.NewTimer(10 * time.Second)
	defer timeout.Stop()
	for {
		a.mu.Lock()
		got, changed := a.of(method), a.changed
		a.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-changed:
		case <-timeout.C:
			t.Fatalf("%d calls of %s, want %d", len(got), method, n)
		}
	}
}

// Played returns how many turns were played, which counts the effects of the agent.
func (a *Agent) Played() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.played
}

func (a *Agent) record(method string, body proto.Message, header map[string][]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, Request{method, body, header})
	close(a.changed)
	a.changed = make(chan struct{})
}

// called records a gRPC call and checks its token.
func (a *Agent) called(ctx context.Context, method string, body proto.Message) error {
	md, _ := metadata.FromIncomingContext(ctx)
	a.record(method, body, md)
	return a.authorize(md.Get("authorization"))
}

func (a *Agent) authorize(got []string) error {
	if a.cfg.Token != "" && !slices.Equal(got, []string{"Bearer " + a.cfg.Token}) {
		return status.Error(codes.Unauthenticated, "no or wrong token")
	}
	return nil
}

// take passes a message to its task: a new task, the task that received the same message
// before, or the task whose question it answers.
func (a *Agent) take(key, taskID string, m *a2av1.Message) (*task, Turn, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.keys[key]; t != nil && !a.cfg.Forgetful {
		return t, Turn{}, nil
	}
	if a.server == nil {
		return nil, Turn{}, status.Error(codes.Unavailable, "down")
	}
	t := a.tasks[taskID]
	if taskID != "" && t == nil {
		return nil, Turn{}, status.Error(codes.NotFound, "no such task")
	}
	turn := a.next()
	if turn.Refuse != nil {
		return nil, turn, turn.Refuse
	}
	if t == nil {
		t = newTask(key)
		t.breaks = turn.Break
		a.tasks[t.id] = t
	} else {
		t.append(&teamv1.Event{Kind: &teamv1.Event_Answered{Answered: &teamv1.Answered{Question: t.asking, Message: m}}})
	}
	a.keys[key] = t
	if turn.Direct {
		t.direct = turn.reply(m)
		return t, turn, nil
	}
	ctx := a.server.ctx
	a.server.work.Go(func() { t.play(ctx, turn, m) })
	return t, turn, nil
}

func (a *Agent) next() Turn {
	n := a.played
	a.played++
	if n < len(a.cfg.Turns) {
		return a.cfg.Turns[n]
	}
	return a.cfg.Default
}

func (a *Agent) find(id string) (*task, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.tasks[id]; t != nil {
		return t, nil
	}
	return nil, notFound()
}

// Cancel cancels a task, as the agent itself.
func (a *Agent) Cancel(ctx context.Context, id string) error {
	t, err := a.find(id)
	if err != nil {
		return err
	}
	a.stopTask(ctx, t)
	return nil
}

// stopTask cancels a task and waits up to 100 ms for its end.
func (a *Agent) stopTask(ctx context.Context, t *task) {
	t.cancel()
	if t.asks() {
		t.append(ended(teamv1.Outcome_OUTCOME_CANCELED, &teamv1.Ended{}))
	}
	ctx, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	_ = t.rest(ctx)
}
