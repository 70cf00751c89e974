package journaltest

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/scripted"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/supervisor"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// cast holds the agents of a scenario. Whoever works outside, a leaf, a model or a
// tool, is counted.
type cast struct {
	*testing.T
	*manager.Manager
	replaying bool
	calls     atomic.Int64
	paid      atomic.Int64 // calls of the tool that must not be called twice
}

func newCast(t *testing.T, replaying bool) *cast {
	return &cast{T: t, Manager: manager.New(manager.Config{}), replaying: replaying}
}

func (c *cast) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// add registers a leaf.
func (c *cast) add(leaves ...agent.Agent) {
	c.Helper()
	for _, a := range leaves {
		info, err := a.Info(context.Background())
		c.must(err)
		c.must(c.Register(info.GetId(), counted{a, c}))
	}
}

// counted counts the calls of a leaf.
type counted struct {
	agent.Agent
	cast *cast
}

func (a counted) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	a.cast.calls.Add(1)
	return a.Agent.Process(ctx, req)
}

// speaker yields what its func emits, and then the reply.
type speaker struct {
	id    string
	speak func(ctx context.Context, req *teamv1.ProcessRequest, emit func(*teamv1.Event)) (*teamv1.Reply, error)
}

func (a speaker) Info(context.Context) (*teamv1.AgentInfo, error) {
	return &teamv1.AgentInfo{Id: a.id, Name: a.id}, nil
}

func (a speaker) HealthCheck(context.Context) (*teamv1.Health, error) { return agent.Healthy(), nil }

func (a speaker) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		more := true
		r, err := a.speak(ctx, req, func(ev *teamv1.Event) {
			ev.Scope, ev.Agent = req.GetScope(), agent.Path(req)
			more = more && yield(ev, nil)
		})
		switch {
		case !more:
		case err != nil:
			yield(nil, err)
		default:
			yield(agent.ReplyEvent(req, r), nil)
		}
	}
}

// leaves are kinds of members, each under the id it is given.
var leaves = map[string]func(c *cast, id string) agent.Agent{
	"echo": func(_ *cast, id string) agent.Agent {
		return says(id, func(text string) string { return id + "(" + text + ")" })
	},
	"empty": func(_ *cast, id string) agent.Agent {
		return &agent.Func{ID: id, Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
			return &a2av1.Message{Role: a2av1.Role_ROLE_AGENT}, nil
		}}
	},
	"fail": func(_ *cast, id string) agent.Agent {
		return &agent.Func{ID: id, Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
			return nil, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "%s is out of ink", id)
		}}
	},
	"panic": func(_ *cast, id string) agent.Agent {
		return &agent.Func{ID: id, Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) { panic("secret") }}
	},
	"reject": func(_ *cast, id string) agent.Agent {
		return speaker{id, func(context.Context, *teamv1.ProcessRequest, func(*teamv1.Event)) (*teamv1.Reply, error) {
			return &teamv1.Reply{Outcome: teamv1.Outcome_OUTCOME_REJECTED, Result: &teamv1.Reply_Message{Message: agent.NewMessage("not that")}}, nil
		}}
	},
	"stream": func(c *cast, id string) agent.Agent {
		return script(c, id, &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Echo{Echo: true}}, &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Chunks{Chunks: 3}})
	},
	"progress": func(c *cast, id string) agent.Agent {
		return script(c, id, &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Progress{Progress: "reading {{input}}"}}, &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Echo{Echo: true}})
	},
	"ask": func(c *cast, id string) agent.Agent { return script(c, id, ask(id+"?")...) },
	"twice": func(c *cast, id string) agent.Agent {
		return script(c, id, append(ask(id+" one?"), ask(id+" two?")...)...)
	},
	"parts": func(_ *cast, id string) agent.Agent {
		return &agent.Func{ID: id, Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
			data, err := structpb.NewValue(map[string]any{"n": 1.5, "list": []any{"a", nil, true}})
			return &a2av1.Message{Role: a2av1.Role_ROLE_AGENT, Metadata: data.GetStructValue(), Parts: append(m.GetParts(),
				&a2av1.Part{Content: &a2av1.Part_Data{Data: data}}, &a2av1.Part{Content: &a2av1.Part_Raw{Raw: []byte{0, 255}}, Filename: "raw.bin"},
				&a2av1.Part{Content: &a2av1.Part_Url{Url: "https://example.com/x"}, MediaType: "text/html"})}, err
		}}
	},
	"artifact": func(_ *cast, id string) agent.Agent { return speaker{id, artifacts} },
	"retry": func(c *cast, id string) agent.Agent {
		return script(c, id, &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Fail{Fail: 2}}, &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Echo{Echo: true}})
	},
}

// artifacts puts two artifacts on record, one of them in pieces.
func artifacts(ctx context.Context, req *teamv1.ProcessRequest, emit func(*teamv1.Event)) (*teamv1.Reply, error) {
	run := agent.From(ctx)
	for i, text := range []string{"first", "second", "third"} {
		emit(&teamv1.Event{Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{
			Artifact: &a2av1.Artifact{ArtifactId: run.ID(req.GetScope(), "report", 1), Name: "report", Parts: agent.TextParts(text)},
			Append:   i > 0, LastChunk: i == 2,
		}}})
	}
	emit(&teamv1.Event{Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{
		Artifact: &a2av1.Artifact{ArtifactId: run.ID(req.GetScope(), "report", 2), Name: "log", Parts: agent.TextParts("all well")}, LastChunk: true,
	}}})
	m := agent.NewMessage("see the report")
	m.MessageId = run.ID(req.GetScope(), "reply", 1)
	return &teamv1.Reply{Result: &teamv1.Reply_Message{Message: m}}, nil
}

func says(id string, f func(string) string) *agent.Func {
	return &agent.Func{ID: id, Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		return agent.NewMessage(f(agent.Text(m))), nil
	}}
}

func script(c *cast, id string, steps ...*teamv1.ScriptedStep) agent.Agent {
	c.Helper()
	a, err := scripted.New(scripted.Config{ID: id, Steps: steps, Members: c.Manager})
	c.must(err)
	return a
}

func ask(question string) []*teamv1.ScriptedStep {
	return []*teamv1.ScriptedStep{{Do: &teamv1.ScriptedStep_Ask{Ask: question}}, {Do: &teamv1.ScriptedStep_Text{Text: "told {{answer}}"}}}
}

// blocks is a leaf that works until its context ends.
func blocks(id string) agent.Agent {
	return &agent.Func{ID: id, Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}}
}

// slow is a leaf that takes its time.
func slow(id string, d time.Duration) agent.Agent {
	return &agent.Func{ID: id, Call: func(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		if err := agent.Sleep(ctx, d); err != nil {
			return nil, err
		}
		return agent.NewMessage(id + "(" + agent.Text(m) + ")"), nil
	}}
}

// team registers a team of registered members.
func (c *cast) team(id string, s team.Scheduler, err error, members ...string) {
	c.Helper()
	c.teamOf(team.Config{ID: id, Scheduler: s, AllowEmpty: true}, err, members...)
}

func (c *cast) teamOf(cfg team.Config, err error, members ...string) {
	c.Helper()
	c.must(err)
	cfg.Registry = c.Manager
	for _, m := range members {
		cfg.Members = append(cfg.Members, team.Member{Agent: m})
	}
	if cfg.Limits == nil {
		cfg.Limits = &teamv1.Limits{}
	}
	cfg.Limits.Retry = &teamv1.Retry{Attempts: new(int32(3)), Backoff: durationpb.New(time.Millisecond)}
	t, err := team.New(cfg)
	c.must(err)
	c.must(c.Register(cfg.ID, t))
}

// workflow registers a team of fixed steps.
func (c *cast) workflow(id string, steps ...workflow.Step) {
	c.Helper()
	w, err := workflow.New(workflow.Config{Steps: steps})
	c.team(id, w, err, membersOf(steps)...)
}

func membersOf(steps []workflow.Step) []string {
	var ids []string
	seen := map[string]bool{"": true}
	for _, s := range steps {
		for _, id := range append(membersOf(s.Parallel), s.Member) {
			if !seen[id] {
				seen[id] = true
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// supervisor registers a team with rules.
func (c *cast) supervisor(id string, members []string, rules ...supervisor.Rule) {
	c.Helper()
	var list []team.Member
	for _, m := range members {
		list = append(list, team.Member{Agent: m})
	}
	s, err := supervisor.New(supervisor.Config{Members: list, Rules: rules})
	c.team(id, s, err, members...)
}

// model answers with what its func makes of a conversation.
type model struct {
	cast *cast
	turn func(*agent.ModelRequest) (*teamv1.Turn, error)
}

func (model) Name() string { return "golden" }

func (m model) Generate(_ context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		m.cast.calls.Add(1)
		turn, err := m.turn(req)
		if err != nil {
			yield(agent.ModelChunk{}, err)
			return
		}
		for _, word := range strings.SplitAfter(turn.GetText(), " ") {
			if word != "" && !yield(agent.ModelChunk{Text: word}, nil) {
				return
			}
		}
		yield(agent.ModelChunk{Turn: turn, Spent: &teamv1.Spent{InputTokens: 7, OutputTokens: 5, ModelCalls: 1, CostMicros: 12}}, nil)
	}
}

// tool is a tool that repeats its arguments.
type tool struct {
	cast *cast
	fail bool
}

func (t tool) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: "repeat", Description: "Repeats.", Parameters: json.RawMessage(`{"type":"object"}`)}
}

func (t tool) Call(_ context.Context, arguments json.RawMessage, _ string) (*teamv1.ToolResult, error) {
	t.cast.calls.Add(1)
	return &teamv1.ToolResult{Text: "repeated " + string(arguments), IsError: t.fail}, nil
}

// modeled registers an agent with a model that calls its tool so many times.
func (c *cast) modeled(id string, calls int, fails bool) {
	c.Helper()
	m := model{c, func(req *agent.ModelRequest) (*teamv1.Turn, error) {
		done := 0
		for _, m := range req.Messages {
			if m.Role == agent.RoleTool {
				done++
			}
		}
		if done < calls {
			return &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "call", Name: "repeat", Arguments: `{"n": 1}`}}, FinishReason: "tool_calls", Model: "golden-1"}, nil
		}
		return &teamv1.Turn{Text: "I have " + req.Messages[len(req.Messages)-1].Text, FinishReason: "stop", Model: "golden-1"}, nil
	}}
	a, err := leader.NewAgent(leader.AgentConfig{ID: id, Model: m, Tools: []agent.Tool{tool{c, fails}}})
	c.must(err)
	c.must(c.Register(id, a))
}
