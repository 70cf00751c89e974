package machine

import (
	"context"
	"iter"
	"sync"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/scripted"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/workflow"
	"github.com/agentteams/team-server/tests/rig"
)

// The agents, by what becomes of a task of theirs.
const (
	echoes  = "echoes"  // completes
	fails   = "fails"   // fails
	refuses = "refuses" // is rejected
	streams = "streams" // streams its text and completes
	asks    = "asks"    // asks once, then completes
	twice   = "twice"   // asks twice, then completes
	gates   = "gates"   // works until its gate is opened, then streams and completes
	direct  = "direct"  // may answer with a message
	pair    = "pair"    // a team of two that ask at the same time
)

// cast returns all of them, and what opens the gates.
func cast(t testing.TB) (*manager.Manager, *gate) {
	g := &gate{opened: map[string]chan struct{}{}, before: map[string]int{}, moved: make(chan struct{})}
	m := rig.Manager(t,
		&agent.Func{ID: echoes, Call: reply("echo: ")},
		&agent.Func{ID: direct, Call: reply("direct: "), MayReplyDirectly: true},
		&agent.Func{ID: fails, Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
			return nil, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "out of ink")
		}},
		speaker{id: refuses, speak: func(_ context.Context, _ *teamv1.ProcessRequest, _ func(*teamv1.Event) bool) *teamv1.Reply {
			return &teamv1.Reply{Outcome: teamv1.Outcome_OUTCOME_REJECTED, Result: &teamv1.Reply_Message{Message: agent.NewMessage("no")}}
		}},
		speaker{id: gates, speak: g.speak},
		script(t, streams, &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Echo{Echo: true}}, &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Chunks{Chunks: 3}}),
		script(t, asks, ask("who?")...),
		script(t, twice, append(ask("one?"), ask("two?")...)...),
		script(t, "left", ask("left?")...),
		script(t, "right", ask("right?")...),
	)
	w, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "l", Member: "left"}, {ID: "r", Member: "right"}}})
	if err != nil {
		t.Fatal(err)
	}
	both, err := team.New(team.Config{
		ID: pair, Mode: "workflow", Scheduler: w, Members: []team.Member{{Agent: "left"}, {Agent: "right"}}, Registry: m,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Register(pair, both); err != nil {
		t.Fatal(err)
	}
	return m, g
}

func reply(prefix string) func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
	return func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		return agent.NewMessage(prefix + agent.Text(m)), nil
	}
}

func script(t testing.TB, id string, steps ...*teamv1.ScriptedStep) agent.Agent {
	t.Helper()
	a, err := scripted.New(scripted.Config{ID: id, Steps: steps})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func ask(question string) []*teamv1.ScriptedStep {
	return []*teamv1.ScriptedStep{
		{Do: &teamv1.ScriptedStep_Ask{Ask: question}}, {Do: &teamv1.ScriptedStep_Text{Text: "{{answer}}"}},
	}
}

// speaker is an agent that yields what its func emits, and then the reply.
type speaker struct {
	id    string
	speak func(ctx context.Context, req *teamv1.ProcessRequest, emit func(*teamv1.Event) bool) *teamv1.Reply
}

func (a speaker) Info(context.Context) (*teamv1.AgentInfo, error) {
	return &teamv1.AgentInfo{Id: a.id, Name: a.id}, nil
}

func (a speaker) HealthCheck(context.Context) (*teamv1.Health, error) { return agent.Healthy(), nil }

func (a speaker) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		more := true
		r := a.speak(ctx, req, func(ev *teamv1.Event) bool {
			ev.Scope, ev.Agent = req.GetScope(), agent.Path(req)
			more = more && yield(ev, nil)
			return more
		})
		switch {
		case !more:
		case r == nil:
			yield(nil, context.Cause(ctx))
		default:
			yield(agent.ReplyEvent(req, r), nil)
		}
	}
}

// gate holds tasks until it is opened for the text they were given.
type gate struct {
	mu     sync.Mutex
	opened map[string]chan struct{} // guarded by mu
	before map[string]int           // how many stand before each; guarded by mu
	moved  chan struct{}            // closed when somebody comes or goes; guarded by mu
}

// move counts who stands before a gate.
func (g *gate) move(text string, by int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before[text] += by
	close(g.moved)
	g.moved = make(chan struct{})
}

// await waits until so many stand before a gate: they are driven.
func (g *gate) await(ctx context.Context, text string, n int) error {
	for {
		g.mu.Lock()
		there, moved := g.before[text] == n, g.moved
		g.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (g *gate) of(text string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened[text] == nil {
		g.opened[text] = make(chan struct{})
	}
	return g.opened[text]
}

// speak waits, streams in three pieces and replies.
func (g *gate) speak(ctx context.Context, req *teamv1.ProcessRequest, emit func(*teamv1.Event) bool) *teamv1.Reply {
	text := agent.Text(req.GetMessage())
	g.move(text, 1)
	defer g.move(text, -1)
	select {
	case <-g.of(text):
	case <-ctx.Done():
		return nil
	}
	id := agent.From(ctx).ID(req.GetScope(), "artifact", 1)
	for i, piece := range []string{"through", ": ", text} {
		if !emit(&teamv1.Event{Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{ArtifactId: id, Text: piece, Restart: i == 0}}}) {
			return nil
		}
	}
	return &teamv1.Reply{Result: &teamv1.Reply_Message{Message: agent.NewMessage("through: " + text)}}
}
