package faulty_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/faulty"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/internal/testkit/storetest"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFaulty runs the contract of stores: without a plan, a faulty store is like the store
// in it.
func TestFaulty(t *testing.T) {
	storetest.Run(t, func(t testing.TB, clock func() time.Time) storetest.Sweeper {
		s := memstore.OpenAt(t, clock)
		return swept{faulty.New(s), s}
	})
}

// swept sweeps the store in a faulty store.
type swept struct {
	*faulty.Store
	in *sqlstore.Store
}

func (s swept) Sweep(ctx context.Context) error { return s.in.Sweep(ctx) }

// outage is how long a broken store stays so.
const outage = 20 * time.Second

// TestS_49_EveryOperation has the k-th operation of a run meet a fault, for
// k = 1, 2, 3 … until a run has no such operation, or some of these. The caller repeats what was not
// acknowledged. Each run ends as it would have, and nothing runs again that was on
// record.
func TestS_49_EveryOperation(t *testing.T) {
	for name, story := range map[string]func(*rig) string{
		"a run that asks": asks, "a run that is canceled": canceled,
		"a run that is paused (S-44)": paused, "a run that is stopped (S-43)": stopped, "a run that is cut (S-43)": cut,
	} {
		for first, fault := range []struct {
			name string
			plan func(k int) faulty.Plan
		}{
			{"fails", func(k int) faulty.Plan { return faulty.Kth(k, faulty.Fail) }},
			{"is done and reported as failed", func(k int) faulty.Plan { return but(faulty.Claim, faulty.Kth(k, faulty.Lie)) }},
			{"hangs", func(k int) faulty.Plan { return faulty.Kth(k, faulty.Hang) }},
			{"fails like every write after it for a time", func(k int) faulty.Plan { return faulty.From(k, faulty.Fail) }},
		} {
			t.Run("S-49 the k-th operation of "+name+" "+fault.name, func(t *testing.T) {
				k := first%sample.Stride() + 1
				for more := true; more; k += sample.Stride() {
					if k > 500 {
						t.Fatal("there is no end to it")
					}
					t.Run(fmt.Sprint(k), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { more = one(t, fault.plan(k), story) })
					})
				}
				if k < 15 { // how many there are depends on how far the run is when it is canceled
					t.Errorf("a run has fewer than %d operations", k)
				}
			})
		}
	}
}

// but keeps an operation out of a plan: a claim that its owner does not know of
// is lost with a store that has no leases.
func but(not faulty.Op, plan faulty.Plan) faulty.Plan {
	return func(op faulty.Op) faulty.Mode {
		if op == not {
			return faulty.None
		}
		return plan(op)
	}
}

// one makes a run under a plan. It reports whether there was a fault.
func one(t *testing.T, plan faulty.Plan, story func(*rig) string) bool {
	r := start(t, plan)
	defer r.stop()
	go r.heal()
	id := story(r)
	faults := r.store.Faults()
	r.store.Heal()
	r.journal(id)
	r.remembered()
	return faults > 0
}

// asks is a run that asks people on its way.
func asks(r *rig) string {
	id := r.send("m1", "", "x").GetId()
	r.until(id, a2av1.TaskState_TASK_STATE_INPUT_REQUIRED)
	r.send("m2", id, "yes")
	task := r.until(id, a2av1.TaskState_TASK_STATE_COMPLETED)
	if got := agent.Text(&a2av1.Message{Parts: task.GetArtifacts()[0].GetParts()}); got != "c(b(a(x), yes))" {
		r.Errorf("the answer is %q", got)
	}
	if n := len(task.GetHistory()); n != 3 {
		r.Errorf("history has %d messages, want the first, a question and an answer", n)
	}
	return id
}

// canceled is a run that is canceled while a member works.
func canceled(r *rig) string {
	r.held = true
	id := r.send("m1", "", "x").GetId()
	r.until(id, a2av1.TaskState_TASK_STATE_WORKING)
	r.again("cancel", func(ctx context.Context) error {
		_, err := r.CancelTask(ctx, &a2av1.CancelTaskRequest{Id: id})
		return err
	})
	r.until(id, a2av1.TaskState_TASK_STATE_CANCELED)
	return id
}

// paused is a run that is paused, stands still, and is resumed, twice.
func paused(r *rig) string {
	id := r.send("m1", "", "x").GetId()
	for range 2 {
		r.control("pause", func(ctx context.Context) (*a2av1.Task, error) { return r.Pause(ctx, id) })
		synctest.Wait() // what began before it may be on its way to the member
		stood := r.counted()
		time.Sleep(time.Hour) // in the bubble: more than the team's timeout
		if diff := cmp.Diff(stood, r.counted()); diff != "" {
			r.Errorf("called while it was paused (-want +got):\n%s", diff)
		}
		r.control("resume", func(ctx context.Context) (*a2av1.Task, error) { return r.Resume(ctx, id) })
		r.until(id, a2av1.TaskState_TASK_STATE_INPUT_REQUIRED)
	}
	r.send("m2", id, "yes")
	task := r.until(id, a2av1.TaskState_TASK_STATE_COMPLETED)
	if got := agent.Text(&a2av1.Message{Parts: task.GetArtifacts()[0].GetParts()}); got != "c(b(a(x), yes))" {
		r.Errorf("the answer is %q", got)
	}
	return id
}

// stopped is a run that is stopped where it waits.
func stopped(r *rig) string {
	id := r.send("m1", "", "x").GetId()
	r.until(id, a2av1.TaskState_TASK_STATE_INPUT_REQUIRED)
	r.control("stop", func(ctx context.Context) (*a2av1.Task, error) { return r.Stop(ctx, id, a2a.Stop{SavePartial: true}) })
	r.until(id, a2av1.TaskState_TASK_STATE_CANCELED)
	r.canceled = true
	return id
}

// cut is a run that is stopped while a member works that does not end by itself.
func cut(r *rig) string {
	r.held = true
	id := r.send("m1", "", "x").GetId()
	r.until(id, a2av1.TaskState_TASK_STATE_WORKING)
	for _, force := range []bool{false, true} {
		r.control("stop", func(ctx context.Context) (*a2av1.Task, error) { return r.Stop(ctx, id, a2a.Stop{Force: force}) })
	}
	r.until(id, a2av1.TaskState_TASK_STATE_CANCELED)
	r.canceled = true
	return id
}

// control gives a command until it is taken.
func (r *rig) control(what string, give func(context.Context) (*a2av1.Task, error)) {
	r.Helper()
	r.again(what, func(ctx context.Context) error {
		_, err := give(ctx)
		return err
	})
}

// counted is how often each member was called so far.
func (r *rig) counted() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.calls)
}

// rig is a handler and an engine over a faulty store in memory.
type rig struct {
	*testing.T
	*a2a.Handler
	store *faulty.Store
	ctx   context.Context
	stop  func()

	held     bool // members wait for the end of their context; set before use
	canceled bool // the run has no answer
	mu       sync.Mutex
	calls    map[string]int // of members; guarded by mu
}

func start(t *testing.T, plan faulty.Plan) *rig {
	r := &rig{T: t, store: faulty.New(memstore.Open(t)), calls: map[string]int{}}
	m := manager.New(manager.Config{})
	for _, id := range []string{"a", "b", "c"} {
		must(t, m.Register(id, r.member(id)))
	}
	w, err := workflow.New(workflow.Config{Steps: []workflow.Step{
		{ID: "one", Member: "a"}, {ID: "ask", After: []string{"one"}, Human: &workflow.Human{Question: "go on?"}},
		{ID: "two", Member: "b", After: []string{"ask"}, Task: "{{steps.one.text}}, {{steps.ask.text}}"}, {ID: "three", Member: "c", After: []string{"two"}},
	}})
	must(t, err)
	tm, err := team.New(team.Config{ID: "team", Scheduler: w, Members: []team.Member{{Agent: "a"}, {Agent: "b"}, {Agent: "c"}}, Registry: m, Memory: true})
	must(t, err)
	must(t, m.Register("team", tm))
	e := engine.New(engine.Config{Leases: r.store, Replica: "r1"})
	runner := &drive.Runner{Agent: m.Get, Conversations: r.store}
	r.Handler = a2a.NewHandler(a2a.Config{Agents: m, Store: r.store, Conversations: r.store, Wake: e.Wake})
	must(t, r.store.Remember(t.Context(), conversation, runs.Exchange{Task: "before", By: []runs.Contribution{
		{Path: "team", Messages: []*a2av1.Message{agent.UserMessage("m0", "before")}},
	}}))
	r.store.Break(plan)
	ctx, cancel := context.WithCancel(context.Background())
	r.ctx = identity.WithCaller(ctx, identity.Caller{Account: "acme", Principal: "ann"})
	done := make(chan error, 1)
	go func() { done <- e.Serve(ctx, runner.Drive) }()
	synctest.Wait() // it has looked for runs: from now on somebody has to wake it
	r.stop = func() {
		r.store.Heal()
		cancel()
		must(t, <-done)
		m.Close()
	}
	return r
}

// heal has the store work again some time after its first fault.
func (r *rig) heal() {
	for _, next := range []func() <-chan struct{}{r.store.Fired, after} {
		select {
		case <-next():
		case <-r.ctx.Done():
			return
		}
	}
	r.store.Heal()
}

func after() <-chan struct{} {
	over := make(chan struct{})
	time.AfterFunc(outage, func() { close(over) })
	return over
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) member(id string) agent.Agent {
	return &agent.Func{ID: id, Call: func(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		r.mu.Lock()
		r.calls[id]++
		r.mu.Unlock()
		if r.held {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return agent.NewMessage(id + "(" + agent.Text(m) + ")"), nil
	}}
}

// again calls until it is answered, as a client does that keeps to what it is
// told: what is not acknowledged is asked for again.
func (r *rig) again(what string, call func(context.Context) error) {
	r.Helper()
	for range 100 {
		ctx, cancel := context.WithTimeout(r.ctx, 30*time.Second)
		err := call(ctx)
		cancel()
		if err == nil {
			return
		}
		var e *agent.Error
		unavailable := errors.As(err, &e) && e.Reason == agent.ReasonStoreUnavailable && e.Code == agent.CodeUnavailable && e.RetryAfter > 0
		if !unavailable && !errors.Is(err, context.DeadlineExceeded) && !timedOut(err) {
			r.Fatalf("%s: %v, want UNAVAILABLE", what, err)
		}
		time.Sleep(time.Second) // in the bubble
	}
	r.Fatalf("%s: never answered", what)
}

func timedOut(err error) bool {
	var e *agent.Error
	return errors.As(err, &e) && e.Code == agent.CodeDeadlineExceeded
}

// send sends a message until it is taken.
func (r *rig) send(id, task, text string) (got *a2av1.Task) {
	r.Helper()
	req := &a2av1.SendMessageRequest{Tenant: "team", Message: agent.UserMessage(id, text)}
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	req.Message.TaskId, req.Message.ContextId = task, conversation.ContextID
	r.again("send "+id, func(ctx context.Context) error {
		resp, err := r.SendMessage(ctx, req)
		got = resp.GetTask()
		return err
	})
	return got
}

// until follows a task to a state; a stream that breaks is begun again.
func (r *rig) until(id string, state a2av1.TaskState) (task *a2av1.Task) {
	r.Helper()
	get := func(ctx context.Context) (err error) {
		task, err = r.GetTask(ctx, &a2av1.GetTaskRequest{Id: id})
		return err
	}
	for range 100 {
		if r.again("get", get); task.GetStatus().GetState() == state {
			return task
		}
		if project.RunOf(task.GetMetadata()).GetError() != nil {
			break
		}
		ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
		updates, err := r.SubscribeToTask(ctx, &a2av1.SubscribeToTaskRequest{Id: id}, 0)
		if err == nil {
			for u, err := range updates {
				if err != nil || u.Response.GetStatusUpdate().GetStatus().GetState() == state || u.Response.GetTask().GetStatus().GetState() == state {
					break
				}
			}
		}
		cancel()
		time.Sleep(time.Second) // in the bubble
	}
	r.Fatalf("the task is %v, want %v", task, state)
	return nil
}

// conversation is what the runs belong to; one entry is there before.
var conversation = runs.Thread{Owner: "acme/ann", ContextID: "c"}

// remembered checks the conversation: what the run added is there once, as a whole,
// or not at all (C-17).
func (r *rig) remembered() {
	r.Helper()
	n, err := r.store.Position(r.ctx, conversation)
	must(r.T, err)
	if n != 1 && (n != 3 || r.held || r.canceled) {
		r.Errorf("the conversation has %d entries", n)
	}
}

// journal checks the record: no gap, one end of the root and of every step that
// has started or was canceled before, and no member called once its end was on
// record, nor more than once again.
func (r *rig) journal(id string) {
	r.Helper()
	records, err := r.store.Events(r.ctx, runs.Key{Owner: "acme/ann", ID: id}, 0, 1000)
	must(r.T, err)
	starts, ends := map[string]int{}, map[string]int{}
	for i, rec := range records {
		scope := rec.Event.GetScope()
		if rec.Seq != int64(i+1) {
			r.Errorf("event %d has the sequence %d", i+1, rec.Seq)
		}
		if end := rec.Event.GetEnded(); end != nil {
			ends[scope]++
			if end.GetOutcome() == teamv1.Outcome_OUTCOME_CANCELED {
				starts[scope] = 1 // or it never will
			}
		}
		if rec.Event.GetStarted() != nil {
			starts[scope] = 1
			if ends[scope] > 0 {
				r.Errorf("step %q starts after its end", scope)
			}
		}
	}
	if diff := cmp.Diff(starts, ends); diff != "" {
		r.Errorf("started, and ended (-want +got):\n%s", diff)
	}
	if last := records[len(records)-1].Event; last.GetEnded() == nil || last.GetScope() != "" {
		r.Errorf("the last event is %v", last)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for member, n := range r.calls {
		if n > 2 {
			r.Errorf("%s was called %d times", member, n)
		}
	}
}
