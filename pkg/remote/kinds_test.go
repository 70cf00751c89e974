package remote_test

import (
	"context"
	"iter"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/agent/agenttest"
	"github.com/agentteams/team-server/pkg/remote"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newService(t *testing.T, f *fakeagent.Agent) agent.Agent {
	t.Helper()
	a, err := remote.New(remote.Config{ID: "far", Address: f.GRPC(), CancelEvery: 10 * time.Millisecond, CancelWait: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func newA2A(t *testing.T, f *fakeagent.Agent, change ...func(*remote.A2AConfig)) *remote.A2A {
	t.Helper()
	cfg := remote.A2AConfig{ID: "far", Card: f.URL(), PollEvery: 5 * time.Millisecond, CancelWait: 2 * time.Second}
	for _, c := range change {
		c(&cfg)
	}
	a, err := remote.NewA2A(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// way is one way to reach a fake agent.
type way struct {
	name   string
	cfg    fakeagent.Config
	first  string // the call that brings the message
	cancel string // the call that cancels
	a2a    bool
	unary  bool
}

func ways() []way {
	a2a := func(name, binding string, noStream bool) way {
		first := "SendStreamingMessage"
		if noStream {
			first = "SendMessage"
		}
		cfg := fakeagent.Config{Bindings: []string{binding}, NoStream: noStream, Tenant: "desk"}
		return way{name: name, cfg: cfg, first: first, cancel: "CancelTask", a2a: true}
	}
	old := func(name, binding string, noStream bool) way {
		w := a2a(name, binding, noStream)
		w.cfg.Old, w.cfg.Tenant = true, ""
		return w
	}
	return []way{
		old("A-25 a2a 0.3 over JSON-RPC", remote.BindingJSONRPC, false),
		old("A-25 a2a 0.3 over JSON-RPC, polled", remote.BindingJSONRPC, true),
		old("A-25 a2a 0.3 over REST", remote.BindingREST, false),
		old("A-25 a2a 0.3 over REST, polled", remote.BindingREST, true),
		{name: "agent service", first: "ProcessStream", cancel: "Cancel"},
		{name: "agent service, unary", cfg: fakeagent.Config{NoStream: true}, first: "Process", cancel: "Cancel", unary: true},
		a2a("a2a over gRPC", remote.BindingGRPC, false),
		a2a("a2a over JSON-RPC", remote.BindingJSONRPC, false),
		a2a("a2a over REST", remote.BindingREST, false),
		a2a("a2a over gRPC, polled", remote.BindingGRPC, true),
		a2a("a2a over REST, polled", remote.BindingREST, true),
	}
}

func (w way) start(t *testing.T, change func(*fakeagent.Config)) (*fakeagent.Agent, agent.Agent) {
	t.Helper()
	cfg := w.cfg
	if change != nil {
		change(&cfg)
	}
	f := fakeagent.New(t, cfg)
	if w.a2a {
		return f, newA2A(t, f)
	}
	return f, newService(t, f)
}

// chatty is a turn with some of everything that streams.
func chatty() fakeagent.Turn {
	return fakeagent.Turn{Progress: "thinking", Chunks: []string{"one ", "two ", "three"}}
}

func TestConformance(t *testing.T) {
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			agenttest.Run(t, agenttest.Kind{
				ID: "far", Want: "one two three", Streams: !w.unary,
				New: func(t *testing.T) agent.Agent {
					_, a := w.start(t, func(c *fakeagent.Config) {
						c.Default = chatty()
						c.Skills = []*teamv1.Skill{{Id: "search", Name: "Search"}}
					})
					return a
				},
				Counted: func(t *testing.T) (agent.Agent, func() int) {
					f, a := w.start(t, func(c *fakeagent.Config) {
						c.Default = chatty()
						c.Forgetful = w.a2a // nothing but Bound keeps it from working twice
					})
					return a, f.Played
				},
				Held: func(t *testing.T) (agent.Agent, <-chan struct{}) {
					f, a := w.start(t, func(c *fakeagent.Config) { c.Default = fakeagent.Turn{Progress: "working", Gate: make(chan struct{})} })
					if !w.unary {
						return watch(a)
					}
					started := make(chan struct{})
					done := make(chan struct{})
					go func() {
						defer close(done)
						f.Await(t, w.first, 1)
						close(started)
					}()
					t.Cleanup(func() { <-done })
					return a, started
				},
				Down: func(t *testing.T) agent.Agent {
					f, a := w.start(t, nil)
					f.Down()
					return a
				},
			})
		})
	}
}

// watched is an agent of which is known when its caller has its first progress.
type watched struct {
	agent.Agent
	progress func()
}

// watch returns an agent that tells once that its caller has its first progress.
func watch(a agent.Agent) (agent.Agent, <-chan struct{}) {
	seen := make(chan struct{})
	return watched{a, sync.OnceFunc(func() { close(seen) })}, seen
}

func (w watched) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		for e, err := range w.Agent.Process(ctx, req) {
			if !yield(e, err) {
				return
			}
			if e.GetProgress() != nil {
				w.progress()
			}
		}
	}
}

// journal drives a remote agent as the owner of a run does.
type journal struct {
	req      *teamv1.ProcessRequest
	run      *agent.Run
	recorded []*teamv1.Event
	reply    *teamv1.Reply
	commits  int
}

func newJournal(text string) *journal {
	j := &journal{req: &teamv1.ProcessRequest{
		AgentId: "far", Message: agent.UserMessage("local-message", text), Key: "key-1", Scope: "2.1", Path: []string{"company"}, Depth: 2,
	}}
	j.req.Message.TaskId, j.req.Message.ContextId = "local-task", "local-context"
	j.run = &agent.Run{Root: "0b7b4a4e-3f0e-4d8e-9c39-0a4bd2c0a001", Committer: func(ctx context.Context) error {
		j.commits = len(j.recorded)
		return ctx.Err()
	}}
	return j
}

// play calls the agent once with what is on record.
func (j *journal) play(ctx context.Context, a agent.Agent) error {
	j.req.Recorded = j.recorded
	for e, err := range a.Process(agent.With(ctx, j.run), j.req) {
		if err != nil {
			return err
		}
		if r := e.GetReply(); r != nil {
			j.reply = r
			continue
		}
		e.Seq = int64(len(j.recorded) + 1)
		j.recorded = append(j.recorded, e)
	}
	return nil
}

// last returns the newest event of a kind; nil without one.
func last[T any](j *journal, get func(*teamv1.Event) *T) *T {
	for i := len(j.recorded) - 1; i >= 0; i-- {
		if v := get(j.recorded[i]); v != nil {
			return v
		}
	}
	return nil
}

// streamedText is the text that deltas give.
func (j *journal) streamedText() string {
	text := ""
	for _, e := range j.recorded {
		if d := e.GetDelta(); d != nil {
			if d.GetRestart() {
				text = ""
			}
			text += d.GetText()
		}
	}
	return text
}

func (j *journal) answer(text string) {
	q := last(j, (*teamv1.Event).GetAsked)
	j.recorded = append(j.recorded, &teamv1.Event{Scope: j.req.GetScope(), Kind: &teamv1.Event_Answered{
		Answered: &teamv1.Answered{Question: q.GetQuestion(), Message: agent.UserMessage("answer-message", text)},
	}})
}
