package scripted

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/agent/agenttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peers is a registry in a map.
type peers map[string]agent.Agent

func (p peers) Agent(id string) (agent.Agent, error) {
	if a, ok := p[id]; ok {
		return a, nil
	}
	return nil, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "agent %q not found", id)
}

func steps(t *testing.T, members Members, s ...*teamv1.ScriptedStep) agent.Agent {
	t.Helper()
	a, err := New(Config{ID: "probe", Steps: s, Members: members})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func text(s string) *teamv1.ScriptedStep {
	return &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Text{Text: s}}
}

func ask(s string) *teamv1.ScriptedStep {
	return &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Ask{Ask: s}}
}

func call(s string) *teamv1.ScriptedStep {
	return &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Call{Call: s}}
}

func fail(n int32) *teamv1.ScriptedStep {
	return &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Fail{Fail: n}}
}

var echo = &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Echo{Echo: true}}

// collect runs a call and returns its events and its error.
func collect(ctx context.Context, a agent.Agent, req *teamv1.ProcessRequest) (events []*teamv1.Event, err error) {
	for ev, e := range a.Process(ctx, req) {
		if e != nil {
			return events, e
		}
		events = append(events, ev)
	}
	return events, nil
}

func request(s string) *teamv1.ProcessRequest {
	return &teamv1.ProcessRequest{AgentId: "probe", Key: "k1", Message: agent.UserMessage("m1", s)}
}

func replyOf(events []*teamv1.Event) string {
	if len(events) == 0 {
		return ""
	}
	return agent.Text(events[len(events)-1].GetReply().GetMessage())
}

func TestReply(t *testing.T) {
	for _, tt := range []struct {
		name  string
		steps []*teamv1.ScriptedStep
		want  string
	}{
		{"echo", []*teamv1.ScriptedStep{echo}, "tides"},
		{"texts, a line each", []*teamv1.ScriptedStep{text("About {{input}}."), echo}, "About tides.\ntides"},
		{"no text is the input", []*teamv1.ScriptedStep{{Do: &teamv1.ScriptedStep_DelayMs{DelayMs: 1}}}, "tides"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := agent.Reply(t.Context(), steps(t, nil, tt.steps...), agent.UserMessage("m1", "tides"))
			if err != nil {
				t.Fatal(err)
			}
			if got := agent.Text(m); got != tt.want {
				t.Errorf("reply %q, want %q", got, tt.want)
			}
		})
	}
}

// TestTooLong: no text that is made of an input, and no answer, has more than 4 MiB.
func TestTooLong(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	many := text(strings.Repeat("{{input}}", 2000))
	for name, script := range map[string][]*teamv1.ScriptedStep{
		"a text":   {many},
		"progress": {{Do: &teamv1.ScriptedStep_Progress{Progress: many.GetText()}}},
		"question": {{Do: &teamv1.ScriptedStep_Ask{Ask: many.GetText()}}},
		"answer":   {echo, echo, echo, echo, echo},
	} {
		_, err := agent.Reply(t.Context(), steps(t, nil, script...), agent.UserMessage("m1", long))
		if e := agent.AsError(err); err == nil || e.Reason != agent.ReasonInsufficientResources || !strings.Contains(e.Message, "at most 4194304 are allowed") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestChunksAreTheReply(t *testing.T) {
	a := steps(t, nil, &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Chunks{Chunks: 3}}, text("höher: {{input}}"))
	events, err := collect(t.Context(), a, request("tides"))
	if err != nil {
		t.Fatal(err)
	}
	var streamed []string
	for _, ev := range events[:len(events)-1] {
		streamed = append(streamed, ev.GetDelta().GetText())
	}
	if len(streamed) != 3 || strings.Join(streamed, "") != replyOf(events) {
		t.Errorf("streamed %q, replied %q", streamed, replyOf(events))
	}
	if !events[0].GetDelta().GetRestart() || events[1].GetDelta().GetRestart() {
		t.Error("the stream starts anew at its first piece only")
	}
}

func TestFailsSoOften(t *testing.T) {
	a := steps(t, nil, fail(2), echo)
	for range 2 {
		_, err := collect(t.Context(), a, request("tides"))
		var e *agent.Error
		if !errors.As(err, &e) || !e.Retry || e.Reason != agent.ReasonUnavailable {
			t.Fatalf("error is %v", err)
		}
	}
	events, err := collect(t.Context(), a, request("tides"))
	if err != nil || replyOf(events) != "tides" {
		t.Errorf("third attempt: %v, %v", events, err)
	}
	if _, err := collect(t.Context(), a, request("tides")); err == nil {
		t.Error("the next call begins anew")
	}
}

func TestAskAndResume(t *testing.T) {
	a := steps(t, nil, ask("Which one of {{input}}?"), ask("Sure?"), text("{{answer}}"))
	run := &agent.Run{Root: "5b0b0e58-6a2c-4c6b-9f5d-0d5b5f1f3d10"}
	ctx := agent.With(t.Context(), run)
	req := request("tides")
	req.Scope = "2"
	for round, answer := range []string{"this", "yes"} {
		events, err := collect(ctx, a, req)
		if err != nil || len(events) != 1 {
			t.Fatalf("round %d: %v, %v", round, events, err)
		}
		q := events[0].GetAsked()
		if events[0].GetScope() != "2" || q.GetQuestion() == "" {
			t.Fatalf("round %d: no question: %v", round, events[0])
		}
		req.Recorded = append(req.Recorded, events[0])
		if again, err := collect(ctx, a, req); err != nil || len(again) != 0 {
			t.Fatalf("round %d: an open question is asked again: %v, %v", round, again, err)
		}
		req.Recorded = append(req.Recorded, &teamv1.Event{Scope: "2", Kind: &teamv1.Event_Answered{Answered: &teamv1.Answered{
			Question: q.GetQuestion(), Message: agent.UserMessage("a", answer),
		}}})
	}
	events, err := collect(ctx, a, req)
	if err != nil || replyOf(events) != "yes" {
		t.Errorf("reply %q, %v", replyOf(events), err)
	}
}

func TestProgressOnce(t *testing.T) {
	says := &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Progress{Progress: "Looking at {{input}}."}}
	a := steps(t, nil, says, text("done"))
	ctx := agent.With(t.Context(), &agent.Run{Root: "5b0b0e58-6a2c-4c6b-9f5d-0d5b5f1f3d10"})
	req := request("tides")
	events, err := collect(ctx, a, req)
	if err != nil || len(events) != 2 || agent.Text(events[0].GetProgress().GetMessage()) != "Looking at tides." || replyOf(events) != "done" {
		t.Fatalf("%v, %v", events, err)
	}
	req.Recorded = events[:1]
	if again, err := collect(ctx, a, req); err != nil || len(again) != 1 || replyOf(again) != "done" {
		t.Errorf("what is on record is said again: %v, %v", again, err)
	}
}

// costly is an agent whose answers cost something.
type costly struct{ *agent.Func }

func (c costly) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		for ev, err := range c.Func.Process(ctx, req) {
			if r := ev.GetReply(); r != nil {
				r.Spent = &teamv1.Spent{InputTokens: 1, OutputTokens: 2, CostMicros: 3, ModelCalls: 4, ToolCalls: 5}
			}
			yield(ev, err)
		}
	}
}

func TestS_60_CostOfThoseItCalls(t *testing.T) {
	peer := costly{&agent.Func{ID: "peer", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) { return agent.NewMessage("x"), nil }}}
	want := &teamv1.Spent{InputTokens: 2, OutputTokens: 4, CostMicros: 6, ModelCalls: 8, ToolCalls: 10}
	a := steps(t, peers{"peer": peer}, call("peer"), call("peer"))
	events, err := collect(t.Context(), a, request("tides"))
	if got := events[len(events)-1].GetReply().GetSpent(); err != nil || !proto.Equal(got, want) {
		t.Error(got, err)
	}
	req := request("tides")
	req.Recorded = events[:1]
	events, err = collect(t.Context(), a, req)
	if got := events[len(events)-1].GetReply().GetSpent(); err != nil || !proto.Equal(got, want) {
		t.Error("S-60 after a crash:", got, err)
	}
	_, err = collect(t.Context(), steps(t, peers{"peer": peer}, call("peer"), call("nobody")), request("x"))
	if got := agent.AsError(err).Spent; got.GetCostMicros() != 3 {
		t.Error("S-60 of a failure:", got, err)
	}
}

func TestCallsOnce(t *testing.T) {
	calls := 0
	peer := &agent.Func{ID: "peer", Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		calls++
		return agent.NewMessage("peer says " + agent.Text(m)), nil
	}}
	a := steps(t, peers{"peer": peer}, call("peer"), ask("Go on?"))
	if c, ok := a.(agent.Composite); !ok || !cmp.Equal(c.Members(), []string{"peer"}) {
		t.Error("an agent that calls others has members")
	}
	req := request("tides")
	ctx := agent.With(t.Context(), &agent.Run{Root: "5b0b0e58-6a2c-4c6b-9f5d-0d5b5f1f3d10"})
	events, err := collect(ctx, a, req)
	if err != nil || len(events) != 2 {
		t.Fatalf("%v, %v", events, err)
	}
	req.Recorded = append(events, &teamv1.Event{Kind: &teamv1.Event_Answered{Answered: &teamv1.Answered{
		Question: events[1].GetAsked().GetQuestion(), Message: agent.UserMessage("a", "yes"),
	}}})
	events, err = collect(ctx, a, req)
	if err != nil || replyOf(events) != "peer says tides" || calls != 1 {
		t.Errorf("reply %q after %d calls, %v", replyOf(events), calls, err)
	}
}

func TestCallEnds(t *testing.T) {
	t.Run("unknown agent", func(t *testing.T) {
		_, err := collect(t.Context(), steps(t, peers{}, call("nobody")), request("x"))
		if agent.AsError(err).Reason != agent.ReasonAgentNotFound {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("a circle ends at the depth limit", func(t *testing.T) {
		p := peers{}
		p["probe"] = steps(t, p, call("probe"))
		_, err := collect(t.Context(), p["probe"], request("x"))
		if agent.AsError(err).Reason != agent.ReasonMaxDepth {
			t.Errorf("error is %v", err)
		}
	})
}

func TestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	a := steps(t, nil, &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_DelayMs{DelayMs: 600000}})
	time.AfterFunc(time.Millisecond, func() { cancel(agent.ErrCanceled) })
	if _, err := collect(ctx, a, request("x")); !errors.Is(err, agent.ErrCanceled) {
		t.Errorf("error is %v", err)
	}
}

func TestRefused(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no steps":             {ID: "a"},
		"an empty step":        {ID: "a", Steps: []*teamv1.ScriptedStep{{}}},
		"a call, and no peers": {ID: "a", Steps: []*teamv1.ScriptedStep{call("b")}},
	} {
		if _, err := New(cfg); agent.AsError(err).Reason != agent.ReasonInvalidTeamConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestContract runs the suite that every kind of agent runs.
func TestContract(t *testing.T) {
	count := func(t *testing.T) (agent.Agent, func() int) {
		var calls atomic.Int32
		peer := &agent.Func{ID: "peer", Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
			calls.Add(1)
			return agent.NewMessage("peer: " + agent.Text(m)), nil
		}}
		return steps(t, peers{"peer": peer}, call("peer")), func() int { return int(calls.Load()) }
	}
	agenttest.Run(t, agenttest.Kind{
		ID: "probe", Want: "peer: hello", Streams: true,
		New:     func(t *testing.T) agent.Agent { a, _ := count(t); return a },
		Counted: count,
		Held: func(t *testing.T) (agent.Agent, <-chan struct{}) {
			started := make(chan struct{}, 1)
			peer := &agent.Func{ID: "peer", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
				started <- struct{}{}
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}}
			return steps(t, peers{"peer": peer}, call("peer")), started
		},
		Panicking: func(t *testing.T) agent.Agent {
			peer := &agent.Func{ID: "peer", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) { panic("bug") }}
			return steps(t, peers{"peer": peer}, call("peer"))
		},
	})
}
