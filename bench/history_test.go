package bench

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/google/uuid"

	"github.com/agentteams/team-server/bench/measure"
	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// lengths of histories, in messages.
func lengths() []int { return []int{10, 100, 1000} }

// BenchmarkHistory is goal 9: a step that has so many messages before it, in its
// run, in its conversation, or handed over by who called.
func BenchmarkHistory(b *testing.B) {
	t := &measure.Table{
		Title: "a step by the messages before it, journal in memory",
		Head:  "messages\ttime at 10\ttime at 100\ttime at 1,000\tallocs at 10\tallocs at 100\tallocs at 1,000\tx1000\tx1000 allocs",
		Goals: []string{
			"goal 9: messages=run: x1000 <= 1.5", "goal 9: messages=conversation: x1000 <= 1.5",
			"run: one member's step as often before; conversation: a run of one step in a context whose messages",
			"the store keeps, of which it is shown the last 20; given: a turn of a model that is shown them all; copies: that many messages for it, alone",
		},
	}
	run := placed(b)
	var rivals []measure.Rival
	for _, n := range lengths() {
		rivals = append(rivals, always("copies", copies(n)), always("given", shown(b, n).Store(b)), measure.Rival{Name: "conversation", Start: talk(n)})
	}
	others := measure.Race(b, share(measure.BudgetOf(b), len(lengths())), 1, rivals)
	b.ReportMetric(0, "ns/op")
	addLengths(t, b, "run", run)
	for k := range 3 {
		addLengths(t, b, rivals[k].Name, [][]measure.Figures{others[k], others[k+3], others[k+6]})
	}
	t.Print()
}

// addLengths adds the row of a rival: its figures by length.
func addLengths(t *measure.Table, b *testing.B, name string, all [][]measure.Figures) {
	var cells []any
	for _, one := range all {
		cells = append(cells, measure.Short(measure.Median(one, measure.Each)))
	}
	for _, one := range all {
		cells = append(cells, measure.Median(one, measure.Allocs))
	}
	t.Add("%s\t%s\t%s\t%s\t%.1f\t%.1f\t%.1f\t%.2f\t%.2f", append(append([]any{name}, cells...), measure.Ratio(all[2], all[0], measure.Each), measure.Ratio(all[2], all[0], measure.Allocs))...)
	b.ReportMetric(measure.Ratio(all[2], all[0], measure.Each), name+"-x1000")
}

// placed measures steps around places in a run, by place.
func placed(b *testing.B) [][]measure.Figures {
	b.Helper()
	all := make([][]measure.Figures, len(lengths()))
	for range measure.Rounds {
		for i, n := range lengths() {
			all[i] = append(all[i], around(b, storeRun, n, 8))
		}
	}
	return all
}

// shown is a run of an agent whose model answers at once, and is shown n messages.
func shown(b *testing.B, n int) measure.Job {
	b.Helper()
	a, err := leader.NewAgent(leader.AgentConfig{ID: "bench", Model: reader{n + 1}})
	if err != nil {
		b.Fatal(err)
	}
	return measure.Job{Agent: given{a, said(n)}, Input: "0", Answer: "read"}
}

// given hands its messages over with each call: what a caller does that keeps
// the conversation itself.
type given struct {
	agent.Agent
	history []*a2av1.Message
}

func (g given) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	req.History = g.history
	return g.Agent.Process(ctx, req)
}

// reader is the model: it answers when it is shown as many messages as it should.
type reader struct{ messages int }

func (reader) Name() string { return "reader" }

func (r reader) Generate(_ context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		if n := len(req.Messages); n != r.messages {
			yield(agent.ModelChunk{}, fmt.Errorf("the model is shown %d messages, want %d", n, r.messages))
			return
		}
		yield(agent.ModelChunk{Turn: &teamv1.Turn{Text: "read"}}, nil)
	}
}

// copies is what a model's request takes that holds n messages.
func copies(n int) measure.Call {
	messages := said(n)
	return func(context.Context, int64) error {
		var req agent.ModelRequest
		for _, m := range messages {
			req.Messages = append(req.Messages, agent.ModelMessage{Role: agent.RoleUser, Text: agent.Text(m)})
		}
		if len(req.Messages) != n {
			return fmt.Errorf("%d messages", len(req.Messages))
		}
		return nil
	}
}

// said are n messages of a conversation.
func said(n int) []*a2av1.Message {
	messages := make([]*a2av1.Message, n)
	for i := range messages {
		messages[i] = agent.UserMessage(fmt.Sprint(i), fmt.Sprintf("message %d of a conversation that has gone on for some time", i))
		if i%2 == 1 {
			messages[i].Role = a2av1.Role_ROLE_AGENT
		}
	}
	return messages
}

// talk drives runs of one step in conversations that begin a round with n
// messages. Each run adds two, so they take turns; one of 1,000 stays as long, which
// is the most that is kept.
func talk(n int) func(*testing.B) (measure.Call, func()) {
	const entries = 20_000 // fewer than a store in memory keeps
	return func(b *testing.B) (measure.Call, func()) {
		s := memstore.Open(b)
		agents := measure.Registry{"member": counting()}
		t, err := team.New(team.Config{
			ID: "bench", Scheduler: relay{steps: 1}, Members: []team.Member{{Agent: "member"}}, Registry: agents, Memory: true,
		})
		if err != nil {
			b.Fatal(err)
		}
		threads := make([]runs.Thread, entries/n)
		for i := range threads {
			threads[i] = runs.Thread{Owner: measure.Owner, ContextID: uuid.NewString()}
			past := runs.Exchange{Task: uuid.NewString(), By: []runs.Contribution{{Path: "bench", Messages: said(n)}}}
			if err := s.Remember(b.Context(), threads[i], past); err != nil {
				b.Fatal(err)
			}
		}
		r := &drive.Runner{Agent: func(string) (agent.Agent, error) { return t, nil }, Conversations: s, Replica: "bench"}
		j := measure.Job{Agent: t, Input: "0", Answer: "1"}
		next := 0
		return func(ctx context.Context, _ int64) error {
			next = (next + 1) % len(threads)
			at, err := s.Position(ctx, threads[next])
			if err != nil || at < int64(n) {
				return fmt.Errorf("the conversation has %d messages, want %d: %w", at, n, err)
			}
			return j.Drive(ctx, s, r, &teamv1.Conversation{ContextId: threads[next].ContextID, History: at})
		}, func() {}
	}
}
