package docs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/agent/agenttest"
	"github.com/agentteams/team-server/pkg/guard"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/model/scripted"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/teamfile"
)

// The code of go-library.md: what stands there stands here, and runs.

// relay is a scheduler: each member works once, in the order of the roster.
type relay struct{ team.Base }

func (relay) Next(s *team.State) (team.Decision, error) {
	if s.Rounds < len(s.Team.Members) {
		next := s.Team.Members[s.Rounds].ID
		return team.Decision{
			Steps:  []*teamv1.Step{{Kind: teamv1.Step_KIND_DELEGATE, Member: next}},
			Reason: "it is the turn of " + next,
		}, nil
	}
	return team.Decision{Reply: s.Last.Message, Reason: "all members have worked"}, nil
}

func Example_scheduler() {
	agents := manager.New(manager.Config{})
	defer agents.Close()
	for _, id := range []string{"ann", "bob"} {
		err := agents.Register(id, &agent.Func{ID: id, Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
			return agent.NewMessage(agent.Text(m) + ", " + id), nil
		}})
		if err != nil {
			panic(err)
		}
	}
	t, err := team.New(team.Config{
		ID: "relay", Mode: "relay", Scheduler: relay{}, Registry: agents,
		Members: []team.Member{{Agent: "ann"}, {Agent: "bob"}},
	})
	if err != nil {
		panic(err)
	}
	reply, err := agent.Reply(context.Background(), t, agent.UserMessage("m1", "start"))
	fmt.Println(agent.Text(reply), err)
	// Output: start, ann, bob <nil>
}

// booker is an agent with an effect outside: it books, once.
type booker struct {
	// book is repeated with the same key after a crash, and then books nothing new.
	book func(ctx context.Context, what, key string) (string, error)
}

func (b *booker) Info(context.Context) (*teamv1.AgentInfo, error) {
	return &teamv1.AgentInfo{Id: "booker", Name: "Booker", Description: "Books a table."}, nil
}

func (b *booker) HealthCheck(context.Context) (*teamv1.Health, error) { return agent.Healthy(), nil }

func (b *booker) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		number := booked(req)
		if number == "" {
			// Make recorded events durable before an external side effect.
			err := agent.Commit(ctx)
			if err == nil {
				number, err = b.book(ctx, agent.Text(req.GetMessage()), req.GetKey())
			}
			if err != nil {
				yield(nil, err)
				return
			}
			note := &teamv1.Noted{Code: "BOOKED", Text: number}
			if !yield(&teamv1.Event{Scope: req.GetScope(), Agent: agent.Path(req), Kind: &teamv1.Event_Noted{Noted: note}}, nil) {
				return
			}
		}
		yield(agent.ReplyEvent(req, &teamv1.Reply{Result: &teamv1.Reply_Message{Message: agent.NewMessage("Booked: " + number)}}), nil)
	}
}

// booked returns the booking number that this call recorded before a crash.
func booked(req *teamv1.ProcessRequest) string {
	for _, ev := range req.GetRecorded() {
		if ev.GetScope() == req.GetScope() && ev.GetNoted().GetCode() == "BOOKED" {
			return ev.GetNoted().GetText()
		}
	}
	return ""
}

// table keeps bookings by their key, as a service that knows idempotency keys does.
type table struct {
	mu    sync.Mutex
	taken map[string]string // by key; guarded by mu
}

func (t *table) book(ctx context.Context, _, key string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken == nil {
		t.taken = map[string]string{}
	}
	if t.taken[key] == "" {
		t.taken[key] = fmt.Sprintf("no. %d", len(t.taken)+1)
	}
	return t.taken[key], ctx.Err()
}

func TestR_000_01_BookerKeepsTheContract(t *testing.T) {
	agenttest.Run(t, agenttest.Kind{
		ID: "booker", Want: "Booked: no.", Streams: true,
		New: func(*testing.T) agent.Agent { return &booker{book: (&table{}).book} },
		Counted: func(*testing.T) (agent.Agent, func() int) {
			tab := &table{}
			return &booker{book: tab.book}, func() int { return len(tab.taken) }
		},
	})
}

// shout is a model that repeats the last message in capitals.
type shout struct{}

func (shout) Name() string { return "shout" }

func (shout) Generate(_ context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		text := strings.ToUpper(req.Messages[len(req.Messages)-1].Text)
		if !yield(agent.ModelChunk{Text: text}, nil) { // streamed text
			return
		}
		yield(agent.ModelChunk{Turn: &teamv1.Turn{Text: text, Model: "shout"}, Spent: &teamv1.Spent{OutputTokens: 1}}, nil)
	}
}

func Example_model() {
	a, err := leader.NewAgent(leader.AgentConfig{ID: "loud", Model: shout{}, Instructions: "Be loud."})
	if err != nil {
		panic(err)
	}
	reply, err := agent.Reply(context.Background(), a, agent.UserMessage("m1", "tides"))
	fmt.Println(agent.Text(reply), err)
	// Output: TIDES <nil>
}

// height is a tool that returns the height of the tide.
type height struct{}

func (height) Spec() agent.ToolSpec {
	return agent.ToolSpec{
		Name: "height", Description: "Tells how high the tide is in a port.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"port":{"type":"string"}},"required":["port"]}`),
	}
}

func (height) Call(_ context.Context, arguments json.RawMessage, _ string) (*teamv1.ToolResult, error) {
	var in struct{ Port string }
	if err := json.Unmarshal(arguments, &in); err != nil || in.Port == "" {
		return nil, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "port is missing")
	}
	return &teamv1.ToolResult{Text: in.Port + ": 4.2 m"}, nil
}

func Example_tool() {
	script, err := scripted.Parse("tides.script.yaml", []byte(`
agents:
  pilot:
    - when: turn == 1
      tool_calls: [{name: height, arguments: {port: Brest}}]
    - text: "The tide: {{results}}."
`))
	if err != nil {
		panic(err)
	}
	model, err := scripted.New(scripted.Config{Script: script})
	if err != nil {
		panic(err)
	}
	pilot, err := leader.NewAgent(leader.AgentConfig{ID: "pilot", Model: model, Tools: []agent.Tool{height{}}})
	if err != nil {
		panic(err)
	}
	reply, err := agent.Reply(context.Background(), pilot, agent.UserMessage("m1", "How high is it in Brest?"))
	fmt.Println(agent.Text(reply), err)
	// Output: The tide: Brest: 4.2 m. <nil>
}

func price(_ context.Context, text string) (string, error) { return text + " That is 3 EUR.", nil }

func TestTeamFile(t *testing.T) {
	file := filepath.Join(files(t, blocks(t, "docs/go-library.md")), "tides.yaml")
	f, err := teamfile.Load(file, teamfile.Config{
		Tools:      map[string]agent.Tool{"height": height{}},
		Agents:     map[string]agent.Agent{"pricing": agent.TextFunc("pricing", price)},
		Schedulers: map[string]team.Scheduler{"harbour": relay{}},
	})
	if err != nil {
		panic(err) // with all faults of the file, and their lines
	}
	defer f.Close()
	harbour, err := f.Agent("harbour")
	if err != nil {
		t.Fatal(err)
	}
	reply, err := agent.Reply(t.Context(), harbour, agent.UserMessage("m1", "How high is it?"))
	if got := agent.Text(reply); err != nil || got != "The tide: Brest: 4.2 m. That is 3 EUR." {
		t.Errorf("%q %v", got, err)
	}
}

// masked is a middleware that replaces long numbers in messages.
type masked struct{ numbers *regexp.Regexp }

func (masked) Name() string { return "masked" }

func (m masked) Check(_ context.Context, p *agent.Passing) (agent.Verdict, error) {
	text := agent.Text(p.Message)
	if strings.Contains(text, "PIN") {
		return agent.Verdict{Block: "it contains a PIN; remove it"}, nil
	}
	p.Message.Parts = agent.TextParts(m.numbers.ReplaceAllString(text, "[number]"))
	return agent.Verdict{Message: p.Message}, nil
}

func Example_middleware() {
	mask := agent.Guard{Middleware: masked{regexp.MustCompile(`\d{8,}`)}, OnFailure: agent.Abort}
	short, err := guard.New(guard.Config{Name: "short", MaxLength: 200})
	if err != nil {
		panic(err)
	}
	a, err := leader.NewAgent(leader.AgentConfig{
		ID: "loud", Model: shout{}, Guards: agent.Guards{Input: []agent.Guard{short, mask}, Output: []agent.Guard{mask}},
	})
	if err != nil {
		panic(err)
	}
	for _, text := range []string{"card 4111111111111111", "PIN 1234"} {
		reply, err := agent.Reply(context.Background(), a, agent.UserMessage("m1", text))
		fmt.Println(agent.Text(reply), err)
	}
	// Output:
	// CARD [NUMBER] <nil>
	//  GUARDRAIL_BLOCKED: guardrail "masked" stopped the input of "loud": it contains a PIN; remove it
}

// TestTracing exports the spans of a server to memory.
func TestTracing(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	desk := &agent.Func{ID: "desk", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) { return agent.NewMessage("done"), nil }}
	provider := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(server.TraceIDs{}), sdktrace.WithBatcher(exporter))
	s, err := server.NewLocal(server.Config{Agent: desk, Tracing: server.Tracing{Provider: provider}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	call := server.WithCaller(ctx, "acme", "ann")
	if _, err := s.Handler().SendMessage(call, &a2av1.SendMessageRequest{Message: agent.UserMessage("m1", "x")}); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := provider.ForceFlush(t.Context()); err != nil {
		t.Error(err)
	}
	if got := exporter.GetSpans(); !slices.ContainsFunc(got, func(s tracetest.SpanStub) bool { return s.Name == "invoke_agent desk" }) {
		t.Errorf("spans %v", got)
	}
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
