package team_test

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// modelFunc answers turns by a func.
type modelFunc func(req *agent.ModelRequest) *teamv1.Turn

func (modelFunc) Name() string { return "test" }

func (f modelFunc) Generate(_ context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		yield(agent.ModelChunk{Turn: f(req), Spent: &teamv1.Spent{}}, nil)
	}
}

// echoTool answers with its arguments.
type echoTool struct{}

func (echoTool) Spec() agent.ToolSpec { return agent.ToolSpec{Name: "echo"} }
func (echoTool) Call(_ context.Context, arguments json.RawMessage, _ string) (*teamv1.ToolResult, error) {
	return &teamv1.ToolResult{Text: string(arguments)}, nil
}

func newModelAgent(t *testing.T, m agent.Model, tools ...agent.Tool) *leader.Agent {
	t.Helper()
	a, err := leader.NewAgent(leader.AgentConfig{ID: "m", Model: m, Tools: tools})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestModelAgent_CallsWithTheSameID(t *testing.T) {
	a := newModelAgent(t, modelFunc(func(req *agent.ModelRequest) *teamv1.Turn {
		if len(req.Messages) == 1 {
			return &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "x", Name: "echo", Arguments: `{"n":1}`}, {Id: "x", Name: "echo", Arguments: `{"n":2}`}}}
		}
		return &teamv1.Turn{Text: req.Messages[2].Text + req.Messages[3].Text}
	}), echoTool{})
	if got, err := ask(t, a, "hi"); err != nil || got != `{"n":1}{"n":2}` {
		t.Error(got, err)
	}
}

// A message that comes during the last turn is heard by another turn, after
// what was said before it.
func TestModelAgent_A_17_HearsFollowUps(t *testing.T) {
	run := &agent.Run{Root: crashRoot}
	turns := 0
	a := newModelAgent(t, modelFunc(func(req *agent.ModelRequest) *teamv1.Turn {
		if turns++; turns == 1 {
			run.Deliver(&teamv1.Inbound{N: 1, Kind: &teamv1.Inbound_Received{Received: &teamv1.Received{Message: agent.UserMessage("m2", "and tea")}}})
			return &teamv1.Turn{Text: "coffee"}
		}
		var said []string
		for _, m := range req.Messages {
			said = append(said, m.Text)
		}
		return &teamv1.Turn{Text: strings.Join(said, ", ")}
	}))
	m, err := agent.Reply(agent.With(t.Context(), run), a, agent.UserMessage("m1", "coffee please"))
	if err != nil || agent.Text(m) != "coffee please, coffee, and tea" || turns != 2 {
		t.Error(agent.Text(m), err, turns)
	}
}

// panicky panics when it is asked about itself.
type panicky struct{ *agent.Func }

func (panicky) Info(context.Context) (*teamv1.AgentInfo, error)     { panic("no") }
func (panicky) HealthCheck(context.Context) (*teamv1.Health, error) { panic("no") }

func TestR_000_11_MemberThatPanicsWhenAsked(t *testing.T) {
	tm := newTeam(t, registry{"a": skilled("a", "s"), "b": panicky{skilled("b")}}, inOrder("a"), "a", "b")
	if info, err := tm.Info(t.Context()); err != nil || len(info.GetCapabilities()) != 1 {
		t.Error(info, err)
	}
	if h, err := tm.HealthCheck(t.Context()); err != nil || h.GetHealthy() || !h.GetUsable() {
		t.Error(h, err)
	}
	r := watch(t.Context(), tm, "hi")
	if r.err != nil || r.text() != "a(hi)" || len(r.noted("MEMBER_UNAVAILABLE")) != 1 {
		t.Error(r.text(), r.err, r.noted("MEMBER_UNAVAILABLE"))
	}
	if !slices.ContainsFunc(r.events, func(ev *teamv1.Event) bool { return len(ev.GetObserved().GetMembers()) == 2 }) {
		t.Error("the roster is not on record")
	}
}

func TestModelAgent_R_000_05_Info(t *testing.T) {
	for name, want := range map[string]string{"": "clerk", "The Clerk": "The Clerk"} {
		a, err := leader.NewAgent(leader.AgentConfig{ID: "clerk", Name: name, Model: mute{}})
		if err != nil {
			t.Fatal(err)
		}
		if info, err := a.Info(t.Context()); err != nil || info.GetName() != want {
			t.Errorf("%q: %v, %v", name, info, err)
		}
	}
}

// dictating is a model that streams its pieces and then ends its turn.
type dictating func(yield func(text string) bool)

func (dictating) Name() string { return "dictating" }
func (f dictating) Generate(context.Context, *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		f(func(text string) bool { return yield(agent.ModelChunk{Text: text}, nil) })
		yield(agent.ModelChunk{Turn: &teamv1.Turn{Text: "done"}}, nil)
	}
}

func TestModelAgent_GathersWhatItStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("x", team.DeltaBytes-1)
		r := watch(t.Context(), newModelAgent(t, dictating(func(yield func(string) bool) {
			for _, piece := range []string{"first", "a", long, "b", "c"} {
				yield(piece)
			}
			time.Sleep(team.DeltaAge - time.Nanosecond)
			yield("d")
			time.Sleep(time.Nanosecond)
			yield("e")
			yield("f")
		})), "x")
		var got []string
		for _, ev := range r.events {
			if d := ev.GetDelta(); d != nil {
				got = append(got, d.GetText())
			}
		}
		if diff := cmp.Diff([]string{"first", "a" + long, "bcde", "f"}, got); diff != "" || r.err != nil {
			t.Error(diff, r.err)
		}
	})
}

// TestR_002_6_1_ArgumentsOfTools has a model that wraps its arguments in a string.
func TestR_002_6_1_ArgumentsOfTools(t *testing.T) {
	for arguments, want := range map[string]string{
		`{"n":1}`: `{"n":1}`, `"{\"n\":1}"`: `{"n":1}`, ``: `{}`, `"plain"`: `"plain"`, `"null"`: `"null"`, `{"n":`: "the arguments of echo are no JSON",
	} {
		m := leads(t, calls(tool("echo", arguments)), func(req *agent.ModelRequest) *teamv1.Turn { return says(lastSaid(req)) })
		if got, err := ask(t, newModelAgent(t, m, echoTool{}), "x"); err != nil || got != want {
			t.Errorf("%s: %q, want %q, %v", arguments, got, want, err)
		}
	}
}
