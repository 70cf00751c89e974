package tests

import (
	"context"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/remote"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/workflow"
	"github.com/agentteams/team-server/tests/rig"
)

// meteredModel answers with a text and the same cost each time, and keeps what it
// was allowed. Its price is one micro a token.
type meteredModel struct {
	spent *teamv1.Spent

	mu       sync.Mutex
	allowed  []int64     // MaxOutput, by call; guarded by mu
	deadline []time.Time // guarded by mu
}

func (*meteredModel) Name() string       { return "metered" }
func (*meteredModel) Price() agent.Price { return agent.FlatPrice(1_000_000, 1_000_000) }
func (m *meteredModel) Generate(ctx context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		m.mu.Lock()
		at, _ := ctx.Deadline()
		m.allowed, m.deadline = append(m.allowed, req.MaxOutput), append(m.deadline, at)
		m.mu.Unlock()
		yield(agent.ModelChunk{Turn: &teamv1.Turn{Text: "said"}, Spent: proto.CloneOf(m.spent)}, nil)
	}
}

// seen returns what the model was allowed, and its deadlines, so far.
func (m *meteredModel) seen() ([]int64, []time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]int64{}, m.allowed...), append([]time.Time{}, m.deadline...)
}

func metered(t *testing.T, id string, m agent.Model, l *teamv1.Limits) agent.Agent {
	t.Helper()
	a, err := leader.NewAgent(leader.AgentConfig{ID: id, Model: m, Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// limitedChain is chain with limits.
func limitedChain(t *testing.T, m *manager.Manager, id string, l *teamv1.Limits, members ...string) {
	t.Helper()
	c := workflow.Config{}
	var list []team.Member
	for i, name := range members {
		step := workflow.Step{ID: "s" + string(rune('0'+i)), Member: name}
		if i > 0 {
			step.After = []string{"s" + string(rune('0'+i-1))}
		}
		c.Steps, list = append(c.Steps, step), append(list, team.Member{Agent: name})
	}
	s, err := workflow.New(c)
	if err != nil {
		t.Fatal(err)
	}
	tm, err := team.New(team.Config{ID: id, Mode: "workflow", Scheduler: s, Members: list, Registry: m, Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Register(id, tm); err != nil {
		t.Fatal(err)
	}
}

// usage adds up what the record says each path has spent by itself.
func usage(all []*teamv1.Event) map[string]*teamv1.Spent {
	own := map[string]*teamv1.Spent{}
	for _, ev := range all {
		if ev.GetScope() != "" && ev.GetEnded().GetTurn() != nil {
			own[ev.GetAgent()] = agent.AddSpent(own[ev.GetAgent()], ev.GetEnded().GetSpent())
		}
	}
	return own
}

// TestS_60_Usage: what all paths spend is what the root says, in the record and in
// the task's metadata; and a limit stops the run.
func TestS_60_Usage(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		store, _ := at.Open(t)
		m := &meteredModel{spent: &teamv1.Spent{InputTokens: 30, OutputTokens: 20, CostMicros: 50}}
		reg := rig.Manager(t, metered(t, "a", m, nil), metered(t, "b", m, nil))
		chain(t, reg, "inner", "a", "b")
		chain(t, reg, "outer", "inner", "b")
		limitedChain(t, reg, "poor", &teamv1.Limits{MaxTokens: proto.Int64(130)}, "a", "b")
		target := rig.Serve(t, server.Config{Agents: reg, Store: store})

		t.Run("S-60 the sum over the agents' paths is the root's usage", func(t *testing.T) {
			all := events(t, target, "outer", "usage")
			root := all[len(all)-1].GetEnded().GetSpent()
			var sum *teamv1.Spent
			own := usage(all)
			for _, path := range []string{"outer/inner/a", "outer/inner/b", "outer/b"} {
				sum = agent.AddSpent(sum, own[path])
			}
			want := &teamv1.Spent{InputTokens: 90, OutputTokens: 60, CostMicros: 150, ModelCalls: 3}
			if len(own) != 3 || !proto.Equal(sum, root) || !proto.Equal(root, want) {
				t.Errorf("root %v, by path %v", root, own)
			}
		})
		t.Run("S-60 the task's metadata says the same, by delegation", func(t *testing.T) {
			target := target
			target.Headers = map[string]string{"a2a-extensions": a2a.TeamRunURI}
			rig.Each(t, target, func(t *testing.T, c rig.Client) {
				resp, err := c.Send(t.Context(), rig.Text("outer", "usage-"+c.Binding(), "go"))
				if err != nil {
					t.Fatal(err)
				}
				run := a2a.RunOf(resp.GetTask().GetMetadata())
				byPath := map[string]int64{}
				for _, d := range run.GetDelegations() {
					byPath[d.GetPath()] = d.GetSpent().GetCostMicros()
				}
				if run.GetSpent().GetCostMicros() != 150 || byPath["outer/inner"] != 100 || byPath["outer/b"] != 50 || byPath["outer/inner/a"] != 50 {
					t.Errorf("root %v, by path %v", run.GetSpent(), byPath)
				}
			})
		})
		t.Run("S-60 C-07 max_tokens stops the run, which says what it has cost", func(t *testing.T) {
			all := events(t, target, "poor", "poor")
			end := all[len(all)-1].GetEnded()
			if e := end.GetError(); e.GetReason() != agent.ReasonBudgetExceeded || e.GetDetails()["set_by"] != "poor" || e.GetDetails()["value"] != "130" ||
				end.GetOutcome() != teamv1.Outcome_OUTCOME_FAILED || end.GetSpent().GetModelCalls() != 1 {
				t.Error(end)
			}
		})
	})
}

// TestC_07_EnvelopeOfAnotherServer: a member on another server is told what is
// left of tokens, money and time, keeps to it, and what it spent comes back.
func TestC_07_EnvelopeOfAnotherServer(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		links := map[string]func(t *testing.T, at rig.Target, agentID string) agent.Agent{
			"agent service": func(t *testing.T, at rig.Target, agentID string) agent.Agent {
				return overService(t, "far", at, agentID)
			},
		}
		for _, binding := range []string{remote.BindingGRPC, remote.BindingREST, remote.BindingJSONRPC} {
			links["a2a "+binding] = func(t *testing.T, at rig.Target, agentID string) agent.Agent {
				return overA2A(t, "far", at, agentID, binding)
			}
		}
		for name, link := range links {
			t.Run(name, func(t *testing.T) {
				m := &meteredModel{spent: &teamv1.Spent{InputTokens: 40, OutputTokens: 60, CostMicros: 100}}
				far := rig.Manager(t, metered(t, "writer", m, nil))
				chain(t, far, "newsroom", "writer")
				b := rig.Serve(t, server.Config{Agents: far})
				near := rig.Manager(t, link(t, b, "newsroom"), metered(t, "editor", m, nil))
				limits := &teamv1.Limits{MaxTokens: proto.Int64(3000), MaxCost: proto.Float64(0.0015), Timeout: durationpb.New(20 * time.Second)}
				limitedChain(t, near, "desk", limits, "far", "editor")
				limitedChain(t, near, "strict", &teamv1.Limits{MaxTokens: proto.Int64(50)}, "far")
				a := rig.Serve(t, server.Config{Agents: near, Store: kept(t, place)})

				began := time.Now()
				all := events(t, a, "desk", "envelope")
				end := all[len(all)-1].GetEnded()
				want := &teamv1.Spent{InputTokens: 80, OutputTokens: 120, CostMicros: 200, ModelCalls: 2, Claimed: true}
				if !proto.Equal(end.GetSpent(), want) {
					t.Errorf("S-60 the run cost %v, want %v", end.GetSpent(), want)
				}
				allowed, deadlines := m.seen()
				if len(allowed) != 2 || allowed[0] <= 0 || allowed[0] >= 1500 || allowed[1] <= 0 || allowed[1] >= 1400 {
					t.Errorf("the models were allowed %v, of 1500 micros", allowed)
				}
				if at := deadlines[0]; at.IsZero() || at.After(began.Add(20*time.Second)) {
					t.Errorf("S-56 the model there has until %v, the run here until %v", at, began.Add(20*time.Second))
				}

				all = events(t, a, "strict", "strict")
				end = all[len(all)-1].GetEnded()
				if e := end.GetError(); e.GetReason() != agent.ReasonBudgetExceeded || !strings.Contains(e.GetMessage(), "what the caller has left (max_tokens) is 50 tokens") {
					t.Errorf("the peer did not keep to what it was told: %v", end)
				}
				if allowed, _ := m.seen(); len(allowed) != 2 {
					t.Error("a model was asked all the same")
				}
			})
		}
	})
}
