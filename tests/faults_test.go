package tests

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/faulty"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model/openai"
	"github.com/agentteams/team-server/pkg/secret"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/workflow"
	"github.com/agentteams/team-server/tests/rig"
)

// modeled is an agent with a model that answers with its text, and counts.
func modeled(t *testing.T) (a agent.Agent, calls func() int) {
	t.Helper()
	llm := fakellm.New(t)
	var mu sync.Mutex
	n := 0
	llm.Answer("m", func(*fakellm.Request) fakellm.Turn {
		mu.Lock()
		defer mu.Unlock()
		n++
		return fakellm.Turn{Text: "words"}
	})
	model, err := openai.New(openai.Config{Name: "m", BaseURL: llm.URL, APIKey: secret.New("test")})
	if err != nil {
		t.Fatal(err)
	}
	if a, err = leader.NewAgent(leader.AgentConfig{ID: "writer", Model: model, Instructions: "Write."}); err != nil {
		t.Fatal(err)
	}
	return a, func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// TestS_49_NoTaskNoCall: a task that cannot be put on record is UNAVAILABLE on
// every binding, before any model is called. The same message, sent again, is one task.
func TestS_49_NoTaskNoCall(t *testing.T) {
	t.Parallel()
	for _, mode := range []faulty.Mode{faulty.Fail, faulty.Lie} {
		rig.EachStore(t, func(t *testing.T, at rig.Place) {
			if mode == faulty.Lie && !at.Durable {
				return // it has nothing that could fail once it is done
			}
			a, calls := modeled(t)
			l := live(t, at, rig.Manager(t, a))
			for i, c := range l.clients {
				t.Run(fmt.Sprintf("S-49 C-17 create %ss over %s", mode, c.Binding()), func(t *testing.T) {
					before := calls()
					req := rig.Text("writer", "m-"+c.Binding(), "x")
					l.store.Break(faulty.Always(mode, faulty.Create))
					_, err := c.Send(t.Context(), req)
					wantUnavailable(t, c.Binding(), err)
					_, err = rig.Collect(c.Stream(t.Context(), req))
					wantUnavailable(t, c.Binding()+" stream", err)
					if n := calls() - before; mode == faulty.Fail && n > 0 {
						t.Errorf("the model was called %d times for what is not on record", n)
					}
					if c.Binding() == "rest" {
						wantRetryAfter(t, l.Target, req)
					}
					l.store.Heal()
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					resp, err := c.Send(ctx, req)
					if err != nil {
						t.Fatalf("when the store is back: %v", err)
					}
					wantText(t, resp.GetTask(), "words")
					list, err := c.List(t.Context(), &a2av1.ListTasksRequest{})
					if n := calls() - before; err != nil || n != 1 || int(list.GetTotalSize()) != i+1 {
						t.Errorf("%d calls, %d tasks for %d messages, %v", n, list.GetTotalSize(), i+1, err)
					}
				})
			}
		})
	}
}

func wantUnavailable(t *testing.T, binding string, err error) {
	t.Helper()
	f := rig.Fault(err)
	if f == nil || f.Code != "Unavailable" || f.Reason != agent.ReasonStoreUnavailable || f.Domain != wire.DomainTeam {
		t.Errorf("%s: %+v, want UNAVAILABLE %s", binding, f, agent.ReasonStoreUnavailable)
	}
}

// wantRetryAfter wants REST to say when to try again.
func wantRetryAfter(t *testing.T, target rig.Target, req *a2av1.SendMessageRequest) {
	t.Helper()
	b, err := wire.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := target.Do(t.Context(), http.MethodPost, "/writer/message:send", b, map[string]string{"Content-Type": wire.TypeA2A})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := resp.Body(); err != nil || resp.Status != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, Retry-After %q, %v", resp.Status, resp.Header.Get("Retry-After"), err)
	}
}

// TestS_49_TheStoreGoesAway: the store takes nothing more in the middle of a run.
// Nothing is acknowledged, what is on record can be read, and the run goes on when
// the store is back.
func TestS_49_TheStoreGoesAway(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		rig.EachStore(t, func(t *testing.T, at rig.Place) {
			t.Run("S-49 in the middle of a "+mode, func(t *testing.T) {
				c := newCrew("c")
				m := c.members(t)
				four(t, m, mode)
				l := live(t, at, m)
				id := l.sendNow(t, "team", "m", "x").GetId()
				<-c.entered["c"]
				blocked := make(chan error, 1)
				go func() { blocked <- l.follow(t.Context(), id) }()
				l.store.Break(faulty.Always(faulty.Fail, faulty.Writes()...))
				c.open("c") // its end cannot be recorded
				<-l.store.Fired()
				for _, client := range l.clients {
					_, err := client.Send(t.Context(), rig.Text("a", "other-"+client.Binding(), "x"))
					wantUnavailable(t, client.Binding(), err)
					if task := l.get(t, id); task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_WORKING {
						t.Errorf("%s: the task is %v", client.Binding(), task.GetStatus())
					}
				}
				if events := l.journal(t, id); strings.Contains(fmt.Sprint(events), "c(b(a(x)))") {
					t.Error("what could not be recorded is on record")
				}
				if n := c.called(); n["a"] != 1 || n["b"] != 1 || n["c"] != 1 || n["d"] != 0 {
					t.Errorf("calls while the store is away: %v", n)
				}
				l.store.Heal()
				wantText(t, l.until(t, id, ended), "d(c(b(a(x))))")
				if diff := cmp.Diff(map[string]int{"c": 1, "d": 1}, c.called()); diff != "" {
					t.Errorf("calls after:\n%s", diff)
				}
				if err := <-blocked; err != nil {
					t.Errorf("who has waited all the time: %v", err)
				}
			})
		})
	}
}

// follow follows a task to its end, subscribing again where a stream breaks.
func (l *life) follow(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		for u, err := range l.clients[1].Subscribe(ctx, &a2av1.SubscribeToTaskRequest{Id: id}, 0) {
			if f := rig.Fault(err); f != nil && f.Reason == a2aerror.ReasonUnsupportedOperation {
				return nil
			}
			if ended(&a2av1.Task{Status: u.GetStatusUpdate().GetStatus()}) {
				return nil
			}
		}
	}
	return errors.New("the end was not told")
}

// journal reads what is on record of a task.
func (l *life) journal(t *testing.T, id string) []runs.Record {
	t.Helper()
	records, err := l.store.Store.Events(t.Context(), runs.Key{Owner: "local/local", ID: id}, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// TestS_49_AHangingStore: a store that does not answer holds up nobody for ever.
func TestS_49_AHangingStore(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		c := newCrew()
		l := live(t, at, c.members(t))
		l.store.Break(faulty.Always(faulty.Hang, faulty.Create))
		target := l.Target
		target.Headers = map[string]string{"Grpc-Timeout": "200m"}
		var wg sync.WaitGroup
		for i, client := range rig.Clients(t, target) {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				if i == 0 { // gRPC has its own deadline
					ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
				}
				defer cancel()
				_, err := client.Send(ctx, rig.Text("a", "m-"+client.Binding(), "x"))
				if f := rig.Fault(err); f == nil || f.Code != "DeadlineExceeded" {
					t.Errorf("S-49 %s: %+v", client.Binding(), f)
				}
			})
		}
		wg.Wait()
		if n := c.called()["a"]; n != 0 {
			t.Errorf("S-49 %d calls for what is not on record", n)
		}
	})
}

// TestS_49_OneFault has one operation of a run's owner fail on a store that
// outlives it: not done, or done and reported as failed. The loop over every
// operation is that of internal/testkit/faulty.
func TestS_49_OneFault(t *testing.T) {
	t.Parallel() // most of its time it waits for leases
	for _, place := range sample.Of(t, []func(testing.TB) rig.Place{rig.SQLite, rig.PostgreSQL}) {
		at := place(t)
		t.Run(at.Name, func(t *testing.T) {
			var wg sync.WaitGroup
			defer wg.Wait()
			for _, op := range []faulty.Op{faulty.Load, faulty.Append, faulty.Commit, faulty.Inbound, faulty.Park, faulty.Release} {
				for _, mode := range []faulty.Mode{faulty.Fail, faulty.Lie} {
					for k := 1; k <= 3; k++ {
						if at.Name == "postgres" && k != 2 {
							continue // a schema and connections each
						}
						l, c := asker(t, place(t))
						wg.Go(func() { l.faulted(t, c, op, mode, k) })
					}
				}
			}
		})
	}
}

// asker serves a workflow that asks on its way.
func asker(t *testing.T, at rig.Place) (*life, *crew) {
	t.Helper()
	c := newCrew()
	m := c.members(t)
	w, err := workflow.New(workflow.Config{Steps: []workflow.Step{
		{ID: "1", Member: "a"}, {ID: "ask", After: []string{"1"}, Human: &workflow.Human{Question: "go on?"}},
		{ID: "2", Member: "b", After: []string{"ask"}}, {ID: "3", Member: "c", After: []string{"2"}},
	}})
	register(t, m, "workflow", w, err, team.Member{Agent: "a"}, team.Member{Agent: "b"}, team.Member{Agent: "c"})
	return live(t, at, m), c
}

// faulted makes a run of which one operation meets a fault.
func (l *life) faulted(t *testing.T, c *crew, op faulty.Op, mode faulty.Mode, k int) {
	what := fmt.Sprintf("S-49 %s %d %ss", op, k, mode)
	l.store.Break(faulty.Kth(k, mode, op))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	resp, err := l.clients[k%3].Send(ctx, rig.Text("team", "m", "x"))
	if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_INPUT_REQUIRED {
		t.Errorf("%s: %v, %v", what, resp, err)
		return
	}
	answer := rig.Text("team", "answer", "yes")
	answer.Message.TaskId = resp.GetTask().GetId()
	resp, err = l.clients[k%3].Send(ctx, answer)
	if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
		t.Errorf("%s: after the answer: %v, %v", what, resp, err)
		return
	}
	if got := agent.Text(&a2av1.Message{Parts: resp.GetTask().GetArtifacts()[0].GetParts()}); got != "c(b(yes))" {
		t.Errorf("%s: the answer is %q", what, got)
	}
	for id, n := range c.called() {
		if n > 2 {
			t.Errorf("%s: %s was called %d times", what, id, n)
		}
	}
}
