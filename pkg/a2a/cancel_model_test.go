package a2a_test

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/leader"
	serving "github.com/agentteams/team-server/tests/rig"
)

// counting is a model that counts its calls and holds each until it is let go.
type counting struct {
	calls   atomic.Int64
	entered chan struct{}
	spends  bool // answers in spite of the end of its context
}

func (m *counting) Generate(ctx context.Context, _ *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		n := m.calls.Add(1)
		call := &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "c", Name: "search", Arguments: "{}"}}}
		if n%2 == 1 {
			yield(agent.ModelChunk{Turn: call, Spent: &teamv1.Spent{InputTokens: 5}}, nil)
			return
		}
		m.entered <- struct{}{}
		<-ctx.Done()
		if m.spends {
			yield(agent.ModelChunk{Turn: call, Spent: &teamv1.Spent{InputTokens: 7, OutputTokens: 3}}, nil)
			return
		}
		yield(agent.ModelChunk{}, ctx.Err())
	}
}

// tool is a tool made of a func.
type tool func(ctx context.Context) (*teamv1.ToolResult, error)

func (f tool) Call(ctx context.Context, _ json.RawMessage, _ string) (*teamv1.ToolResult, error) {
	return f(ctx)
}

func (r *rig) newModelAgent(t testing.TB, id string, m agent.Model, tools ...agent.Tool) {
	t.Helper()
	a, err := leader.NewAgent(leader.AgentConfig{ID: id, Model: m, Tools: tools})
	if err != nil {
		t.Fatal(err)
	}
	r.add(t, a)
}

func TestS_24_CancelOfAModel(t *testing.T) {
	found := tool(func(context.Context) (*teamv1.ToolResult, error) { return &teamv1.ToolResult{Text: "x"}, nil })
	begin := func(t *testing.T, m *counting) (*rig, string) {
		t.Helper()
		m.entered = make(chan struct{}, 1)
		r := start(t)
		r.newModelAgent(t, "writer", m, found)
		r.newTeam(t, "team", through("writer"), "writer")
		root := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
		<-m.entered
		return r, root
	}
	t.Run("no call is made after the receipt", func(t *testing.T) {
		m := &counting{}
		r, root := begin(t, m)
		task := wantState(t, r.cancel(t, root), canceled)
		serving.WantReached(t, task, "1 team/writer: asked its model", "1.3 team/writer: asked the model gpt")
		if run := project.RunOf(task.GetMetadata()); m.calls.Load() != 2 || !run.GetSpent().GetEstimated() || run.GetSpent().GetInputTokens() != 5+run.GetReceipt().GetSpentAfter().GetInputTokens() {
			t.Errorf("%d calls, %v", m.calls.Load(), run)
		}
	})
	t.Run("what an answer costs that comes after the cancel is told", func(t *testing.T) {
		m := &counting{spends: true}
		r, root := begin(t, m)
		run := project.RunOf(wantState(t, r.cancel(t, root), canceled).GetMetadata())
		after := &teamv1.Spent{InputTokens: 7, OutputTokens: 3, ModelCalls: 1}
		equal(t, after, run.GetReceipt().GetSpentAfter())
		for _, e := range run.GetReceipt().GetEntries() {
			equal(t, after, e.GetSpentAfter())
		}
		if run.GetSpent().GetInputTokens() != 12 || m.calls.Load() != 2 {
			t.Errorf("%d calls, spent %v", m.calls.Load(), run.GetSpent())
		}
	})
	t.Run("a tool that ignores its context is left behind", func(t *testing.T) {
		m := &counting{entered: make(chan struct{}, 1)}
		called, release := make(chan struct{}), make(chan struct{})
		defer close(release)
		r := start(t)
		r.newModelAgent(t, "writer", m, tool(func(context.Context) (*teamv1.ToolResult, error) {
			close(called)
			<-release
			return &teamv1.ToolResult{Text: "late"}, nil
		}))
		root := r.send(t, ann(t), atOnce(message("writer", "hi"))).GetId()
		<-called
		serving.WantReached(t, wantState(t, r.cancel(t, root), canceled), "2 writer: called tool search")
	})
}

// restless is a model that calls a tool in every turn, at once.
type restless struct {
	mu   sync.Mutex
	keys []string // of its calls; guarded by mu
	at   int      // which call is told in reached
	hit  chan struct{}
}

func (m *restless) Generate(_ context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		m.mu.Lock()
		m.keys = append(m.keys, req.Key)
		if len(m.keys) == m.at {
			close(m.hit)
		}
		m.mu.Unlock()
		yield(agent.ModelChunk{Turn: &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "c", Name: "search", Arguments: "{}"}}}}, nil)
	}
}

func (m *restless) called() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.keys)
}

// S-24: a model that is called again and again is canceled at some moment: every
// call had its start on record before the cancel, and none comes after the receipt.
func TestS_24_NoCallAfterTheCancel(t *testing.T) {
	found := tool(func(context.Context) (*teamv1.ToolResult, error) { return &teamv1.ToolResult{Text: "x"}, nil })
	for at := range 100 {
		m := &restless{at: at%25 + 1, hit: make(chan struct{})}
		r := start(t)
		a, err := leader.NewAgent(leader.AgentConfig{ID: "writer", Model: m, Tools: []agent.Tool{found}, Limits: &teamv1.Limits{MaxTurns: new(int32(10_000))}})
		if err != nil {
			t.Fatal(err)
		}
		r.add(t, a)
		r.newTeam(t, "team", together("writer"), "writer")
		root := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
		<-m.hit
		wantState(t, r.cancel(t, root), canceled)
		calls := m.called()
		started, canceledAt := map[string]int64{}, int64(0)
		for _, ev := range r.record(t, root) {
			if key := ev.GetStarted().GetKey(); key != "" {
				started[key] = ev.GetSeq()
			}
			if ev.GetCommanded() != nil {
				canceledAt = ev.GetSeq()
			}
		}
		for _, key := range calls {
			if seq := started[key]; seq == 0 || seq > canceledAt {
				t.Errorf("a call whose start is event %d; the cancel is event %d", seq, canceledAt)
			}
		}
		if n := len(m.called()); n != len(calls) {
			t.Errorf("%d calls after the receipt", n-len(calls))
		}
	}
}
