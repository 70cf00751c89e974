package a2aclient_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

// TestA_23_TenantOfTheConfig: the agent that is called is the one that the configuration
// names, whichever the interface names. An interface whose URL leads to another agent
// does not answer in its place.
func TestA_23_TenantOfTheConfig(t *testing.T) {
	r := serveScene(t)
	web := "http://" + r.HTTP
	at := func(binding, url string) *a2av1.AgentCard {
		return &a2av1.AgentCard{SupportedInterfaces: []*a2av1.AgentInterface{{Url: url, ProtocolBinding: binding, ProtocolVersion: a2aclient.V1, Tenant: "echo"}}}
	}
	cfg := a2aclient.Config{Tenant: "talker", Token: secret.New("open"), AnyGRPCPort: true}
	for name, tt := range map[string]struct {
		open  func() (*a2aclient.Client, error)
		fails bool
	}{
		"gRPC, by a card":           {func() (*a2aclient.Client, error) { return a2aclient.New(at(a2aclient.GRPC, r.GRPC), web, cfg) }, false},
		"gRPC":                      {func() (*a2aclient.Client, error) { return a2aclient.Open(t.Context(), "grpc://"+r.GRPC, cfg) }, false},
		"gRPC, an agent in the URL": {func() (*a2aclient.Client, error) { return a2aclient.Open(t.Context(), "grpc://"+r.GRPC+"/echo", cfg) }, false},
		"REST":                      {func() (*a2aclient.Client, error) { return a2aclient.New(at(a2aclient.REST, web), web, cfg) }, false},
		"JSON-RPC":                  {func() (*a2aclient.Client, error) { return a2aclient.New(at(a2aclient.JSONRPC, web+"/rpc"), web, cfg) }, false},
		"an interface that is bound": {func() (*a2aclient.Client, error) {
			return a2aclient.New(at(a2aclient.JSONRPC, web+"/echo/rpc"), web, cfg)
		}, true},
	} {
		c, err := tt.open()
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.SendMessage(t.Context(), &a2av1.SendMessageRequest{Message: agent.UserMessage(uuid.NewString(), "when?")})
		var answer []*a2av1.Part
		for _, a := range resp.GetTask().GetArtifacts() {
			answer = append(answer, a.GetParts()...)
		}
		if text := agent.Text(&a2av1.Message{Parts: answer}); (err != nil) != tt.fails || text != "high tide at four" && !tt.fails {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		_ = c.Close()
	}
}

// TestA_10_NoCardToVerify: where a card has to be signed, no agent is called without one.
func TestA_10_NoCardToVerify(t *testing.T) {
	verifier, err := a2aclient.NewVerifier(newSigner(t).JWKS())
	if err != nil {
		t.Fatal(err)
	}
	c, err := a2aclient.Open(t.Context(), "grpc://127.0.0.1:1/desk", a2aclient.Config{Verifier: verifier})
	if err == nil {
		_ = c.Close()
	}
	if !errors.Is(err, a2aclient.ErrUntrusted) {
		t.Errorf("error %v", err)
	}
}

// TestA_21_NamesOfHeaders: a header of the configuration replaces another one however its
// name is written.
func TestA_21_NamesOfHeaders(t *testing.T) {
	for _, binding := range []string{a2aclient.GRPC, a2aclient.REST} {
		f := fakeagent.New(t, fakeagent.Config{Bindings: []string{binding}})
		c, err := a2aclient.Open(t.Context(), f.URL(), a2aclient.Config{
			Token: secret.New("other"), AnyGRPCPort: true, Header: http.Header{"authorization": {"Bearer secret"}, "x-trace": {"config"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx := a2aclient.WithHeader(t.Context(), http.Header{"X-Trace": {"call"}})
		if _, err := c.GetTask(ctx, &a2av1.GetTaskRequest{Id: "x"}); !errors.Is(err, a2aclient.ErrTaskNotFound) {
			t.Errorf("%s: error %v", binding, err)
		}
		_ = c.Close()
		h := f.Requests("GetTask")[0].Header
		if got := strings.Join(h["authorization"], ", "); got != "Bearer secret" {
			t.Errorf("%s: authorization is %q", binding, got)
		}
		if got := strings.Join(h["x-trace"], ", "); got != "config" {
			t.Errorf("%s: x-trace is %q", binding, got)
		}
	}
}

// TestCloseLeavesNoConnection has an agent that is called over gRPC, and whose card was
// read over HTTP: both connections end.
func TestCloseLeavesNoConnection(t *testing.T) {
	ended := make(chan struct{})
	var once sync.Once
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		data, err := wire.Marshal(&a2av1.AgentCard{Name: "x", SupportedInterfaces: []*a2av1.AgentInterface{
			{Url: "127.0.0.1:1", ProtocolBinding: a2aclient.GRPC, ProtocolVersion: a2aclient.V1},
		}})
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(data)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			once.Do(func() { close(ended) })
		}
	}
	s.Start()
	defer s.Close()
	c, err := a2aclient.Open(t.Context(), s.URL, a2aclient.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), callTime)
	defer cancel()
	select {
	case <-ended:
	case <-ctx.Done():
		t.Error("the connection to the server of the card is still open")
	}
}

// TestRawOfConcurrentCalls: a writer gets whole lines, one at a time.
func TestRawOfConcurrentCalls(t *testing.T) {
	f := fakeagent.New(t, fakeagent.Config{})
	var raw bytes.Buffer
	c, err := a2aclient.Open(t.Context(), f.URL(), a2aclient.Config{Raw: &raw})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			if _, err := c.GetTask(t.Context(), &a2av1.GetTaskRequest{Id: "x"}); !errors.Is(err, a2aclient.ErrTaskNotFound) {
				t.Errorf("error %v", err)
			}
		})
	}
	calls.Wait()
	for line := range strings.Lines(raw.String()) {
		if line[0] != '>' && line[0] != '<' {
			t.Errorf("line %q", line)
		}
	}
}
