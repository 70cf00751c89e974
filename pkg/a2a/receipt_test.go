package a2a_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/fakeagent"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/remote"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	serving "github.com/agentteams/team-server/tests/rig"
)

// cancel cancels a task of ann.
func (r *rig) cancel(t testing.TB, id string) *a2av1.Task {
	t.Helper()
	task, err := r.CancelTask(ann(t), &a2av1.CancelTaskRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// record is the whole journal of a root.
func (r *rig) record(t testing.TB, root string) []*teamv1.Event {
	t.Helper()
	records, err := r.store.Events(ann(t), a2a.Key{Owner: "acme/ann", ID: root}, 0, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	var events []*teamv1.Event
	for _, rec := range records {
		events = append(events, rec.Event)
	}
	return events
}

// reached is a receipt's entry in one line: path, last action, and a mark where
// a peer was asked.
func reached(task *a2av1.Task) []string {
	var lines []string
	for _, e := range a2a.RunOf(task.GetMetadata()).GetReceipt().GetEntries() {
		line := e.GetScope() + " " + e.GetAgent() + ": " + e.GetLastAction()
		if e.GetConfirmed() {
			line += ", confirmed"
		}
		if e.GetUnconfirmed() {
			line += ", unconfirmed"
		}
		lines = append(lines, line)
	}
	return lines
}

func wantReached(t testing.TB, task *a2av1.Task, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, reached(task)); diff != "" {
		t.Errorf("the receipt (-want +got):\n%s", diff)
	}
}

// caller is an agent that calls a server and waits for its answer.
func caller(t testing.TB, id string) (a agent.Agent, called <-chan string, hungUp <-chan struct{}) {
	t.Helper()
	in, gone := make(chan string, 10), make(chan struct{}, 10)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		in <- req.URL.Path
		<-req.Context().Done()
		gone <- struct{}{}
	}))
	t.Cleanup(s.Close)
	client := s.Client()
	return &agent.Func{ID: id, Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/"+id, nil)
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		return agent.NewMessage(resp.Status), resp.Body.Close()
	}}, in, gone
}

// overA2A is a fake agent on another server, reached over A2A.
func overA2A(t testing.TB, id string, cfg fakeagent.Config, wait time.Duration) (*fakeagent.Agent, agent.Agent) {
	t.Helper()
	f := fakeagent.New(t, cfg)
	a, err := remote.NewA2A(remote.A2AConfig{ID: id, Card: f.URL(), PollEvery: 10 * time.Millisecond, CancelWait: wait})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return f, a
}

// overService is a fake agent on another server, reached over the Agent service.
func overService(t testing.TB, id string, cfg fakeagent.Config, wait time.Duration) (*fakeagent.Agent, agent.Agent) {
	t.Helper()
	f := fakeagent.New(t, cfg)
	a, err := remote.New(remote.Config{ID: id, Address: f.GRPC(), CancelEvery: 10 * time.Millisecond, CancelWait: wait})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return f, a
}

// held is a turn that works until it is canceled.
func held() fakeagent.Config {
	return fakeagent.Config{Default: fakeagent.Turn{Progress: "working", Gate: make(chan struct{})}}
}

// workflowOf is a workflow whose steps run at the same time.
func workflowOf(t testing.TB, members ...string) *team.Workflow {
	t.Helper()
	var steps []team.WorkflowStep
	for _, m := range members {
		steps = append(steps, team.WorkflowStep{ID: m, Member: m})
	}
	w, err := team.NewWorkflow(team.WorkflowConfig{Steps: steps})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// recorded waits until so many events are of a kind.
func (r *rig) recorded(t testing.TB, root string, n int, is func(*teamv1.Event) bool) {
	t.Helper()
	wake, stop := r.store.Watch(root)
	defer stop()
	for {
		events := slices.DeleteFunc(r.record(t, root), func(ev *teamv1.Event) bool { return !is(ev) })
		if len(events) >= n {
			return
		}
		<-wake
	}
}

// bound waits until the tasks of peers are on record for these scopes.
func (r *rig) bound(t testing.TB, root string, scopes ...string) {
	t.Helper()
	for _, scope := range scopes {
		r.recorded(t, root, 1, func(ev *teamv1.Event) bool { return ev.GetBound() != nil && ev.GetScope() == scope })
	}
}

// S-24: leader, team, team, and members that work here and on other servers.
func TestS_24_CancelCascades(t *testing.T) {
	gate, called, hungUp := caller(t, "gate")
	far, overFar := overA2A(t, "far", held(), time.Minute)
	near, overNear := overService(t, "near", held(), time.Minute)
	r := start(t, gate, overFar, overNear)
	r.newTeam(t, "desk", workflowOf(t, "gate", "far", "near"), "gate", "far", "near")
	r.newTeam(t, "newsroom", workflowOf(t, "desk"), "desk")
	r.newTeam(t, "company", workflowOf(t, "newsroom"), "newsroom")
	root := r.send(t, ann(t), atOnce(message("company", "hi"))).GetId()
	<-called
	r.bound(t, root, "1.1.2", "1.1.3")

	updates := r.subscribe(t, root, 0)
	before := time.Now()
	task := wantState(t, r.cancel(t, root), canceled)
	if took := time.Since(before); took > time.Second {
		t.Errorf("took %s", took)
	}
	<-hungUp
	if len(far.Requests("CancelTask")) == 0 || len(near.Requests("Cancel")) == 0 {
		t.Error("a peer got no cancel")
	}
	for _, id := range []string{"~1", "~1.1", "~1.1.1", "~1.1.2", "~1.1.3"} {
		wantState(t, r.get(t, root+id), canceled)
	}
	wantReached(t, task,
		"1 company/newsroom: gave work to desk",
		"1.1 company/newsroom/desk: gave work to gate, far, near",
		"1.1.1 company/newsroom/desk/gate: began to work",
		"1.1.2 company/newsroom/desk/far: remote task TASK_STATE_WORKING, confirmed",
		"1.1.3 company/newsroom/desk/near: remote task TASK_STATE_WORKING, confirmed",
	)
	for _, e := range a2a.RunOf(task.GetMetadata()).GetReceipt().GetEntries() {
		remote := strings.HasSuffix(e.GetAgent(), "/far") || strings.HasSuffix(e.GetAgent(), "/near")
		if remote == (e.GetRemoteTaskId() == "") || e.GetOutcome() != teamv1.Outcome_OUTCOME_CANCELED {
			t.Errorf("entry %v", e)
		}
	}
	if c := far.Requests("CancelTask")[0].Body.(*a2av1.CancelTaskRequest); c.GetId() != a2a.RunOf(task.GetMetadata()).GetReceipt().GetEntries()[3].GetRemoteTaskId() {
		t.Errorf("the peer was asked to end %s", c.GetId())
	}
	equal(t, task, r.get(t, root))
	equal(t, task, r.cancel(t, root))
	sameTask(t, follow(t, updates).task, task)
	if own := reached(r.get(t, root+"~1.1.2")); len(own) != 1 {
		t.Errorf("the peer's step shows %v", own)
	}
}

// S-24: a peer names its task only after the cancel.
func TestS_24_TaskOfAPeerArrivesLate(t *testing.T) {
	before := make(chan struct{})
	cfg := held()
	cfg.Default.Before = before
	far, overFar := overA2A(t, "far", cfg, time.Minute)
	r := start(t, overFar)
	r.newTeam(t, "team", through("far"), "far")
	root := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
	far.Await(t, "SendStreamingMessage", 1)
	ended := make(chan *a2av1.Task)
	go func() { ended <- r.cancel(t, root) }()
	r.recorded(t, root, 1, func(ev *teamv1.Event) bool { return ev.GetCommanded() != nil })
	wantState(t, r.get(t, root), working) // not before the peer is quiet
	close(before)
	task := wantState(t, <-ended, canceled)
	wantReached(t, task, "1 team/far: remote task TASK_STATE_WORKING, confirmed")
	e := a2a.RunOf(task.GetMetadata()).GetReceipt().GetEntries()[0]
	if c := far.Requests("CancelTask"); len(c) == 0 || c[0].Body.(*a2av1.CancelTaskRequest).GetId() != e.GetRemoteTaskId() {
		t.Errorf("cancels %v, entry %v", c, e)
	}
}

// S-24: a peer takes the cancel and goes on.
func TestS_24_PeerThatDoesNotConfirm(t *testing.T) {
	for name, over := range map[string]func(testing.TB, string, fakeagent.Config, time.Duration) (*fakeagent.Agent, agent.Agent){
		"A2A": overA2A, "Agent service": overService,
	} {
		t.Run(name, func(t *testing.T) {
			cfg := held()
			cfg.Default.Deaf = true
			f, a := over(t, "far", cfg, 200*time.Millisecond)
			r := start(t, a)
			r.newTeam(t, "team", through("far"), "far")
			root := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
			r.bound(t, root, "1")
			task := wantState(t, r.cancel(t, root), canceled)
			wantReached(t, task, "1 team/far: remote task TASK_STATE_WORKING, unconfirmed")
			if len(f.Requests("CancelTask"))+len(f.Requests("Cancel")) == 0 {
				t.Error("the peer got no cancel")
			}
			if msg := a2a.RunOf(r.get(t, root+"~1").GetMetadata()).GetError().GetMessage(); !strings.Contains(msg, "has not confirmed") {
				t.Errorf("the step says %q", msg)
			}
		})
	}
}

// S-24: the remote agent is the task's own.
func TestS_24_RemoteRoot(t *testing.T) {
	_, a := overA2A(t, "far", held(), time.Minute)
	r := start(t, a)
	root := r.send(t, ann(t), atOnce(message("far", "hi"))).GetId()
	r.bound(t, root, "")
	wantReached(t, wantState(t, r.cancel(t, root), canceled), " far: remote task TASK_STATE_WORKING, confirmed")
}

// S-24: nobody drives the run when the cancel comes.
func TestS_24_CancelOfAParkedRun(t *testing.T) {
	cfg := fakeagent.Config{Default: fakeagent.Turn{Ask: "which?"}}
	far, overFar := overA2A(t, "far", cfg, time.Minute)
	near, overNear := overService(t, "near", cfg, time.Minute)
	r := start(t, overFar, overNear, script(t, "asker", ask("who?")))
	r.newTeam(t, "inner", together("near", "asker"), "near", "asker")
	r.newTeam(t, "team", together("far", "inner"), "far", "inner")
	root := wantState(t, r.send(t, ann(t), message("team", "hi")), inputRequired).GetId()
	played := far.Played() + near.Played()
	task := wantState(t, r.cancel(t, root), canceled)
	wantReached(t, task,
		"1 team/far: remote task TASK_STATE_INPUT_REQUIRED, confirmed",
		"2 team/inner: gave work to near, asker",
		"2.1 team/inner/near: remote task TASK_STATE_INPUT_REQUIRED, confirmed",
		"2.2 team/inner/asker: waiting for an answer",
	)
	if len(far.Requests("CancelTask")) == 0 || len(near.Requests("Cancel")) == 0 {
		t.Error("a peer got no cancel")
	}
	if far.Played()+near.Played() != played {
		t.Error("a peer was given something to do")
	}
}

// breaking is a remote agent whose connection breaks as soon as the task is known.
type breaking struct{ agent.Agent }

func (b breaking) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	if ctx.Err() != nil {
		return b.Agent.Process(ctx, req)
	}
	return func(yield func(*teamv1.Event, error) bool) {
		for ev, err := range b.Agent.Process(ctx, req) {
			if more := yield(ev, err); !more || err != nil {
				return
			}
			if ev.GetBound() != nil {
				yield(nil, &agent.Error{Reason: agent.ReasonUnavailable, Retry: true, Message: "broken"})
				return
			}
		}
	}
}

// S-24: the connection to a peer broke, and the next attempt has not begun when
// the cancel comes.
func TestS_24_CancelBetweenAttempts(t *testing.T) {
	far, overFar := overA2A(t, "far", held(), time.Minute)
	near, overNear := overService(t, "near", held(), time.Minute)
	r := start(t, breaking{overFar}, breaking{overNear})
	limits := &teamv1.Limits{Retry: &teamv1.Retry{Backoff: durationpb.New(time.Hour)}}
	r.newTeamOf(t, team.Config{ID: "team", Scheduler: together("far", "near"), Limits: limits}, "far", "near")
	root := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
	r.recorded(t, root, 2, func(ev *teamv1.Event) bool { return ev.GetRetried() != nil })
	wantReached(t, wantState(t, r.cancel(t, root), canceled),
		"1 team/far: remote task TASK_STATE_WORKING, confirmed",
		"2 team/near: remote task TASK_STATE_WORKING, confirmed",
	)
	if len(far.Requests("CancelTask")) == 0 || len(near.Requests("Cancel")) == 0 {
		t.Error("a peer got no cancel")
	}
}

// R-002-8.2: the time of a member runs out: its task at the peer ends too.
func TestR_002_8_2_TimeoutEndsTheTaskOfAPeer(t *testing.T) {
	far, overFar := overA2A(t, "far", held(), time.Minute)
	near, overNear := overService(t, "near", held(), time.Minute)
	r := start(t, overFar, overNear)
	tm, err := team.New(team.Config{
		ID: "team", Scheduler: together("far", "near"), Registry: r.agents, ReportErrors: true,
		Members: []team.Member{{Agent: "far", Timeout: 200 * time.Millisecond}, {Agent: "near", Timeout: 200 * time.Millisecond}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.add(t, tm)
	task := r.send(t, ann(t), message("team", "hi"))
	for _, d := range a2a.RunOf(task.GetMetadata()).GetFailedDelegations() {
		if d.GetOutcome() != teamv1.Outcome_OUTCOME_TIMED_OUT {
			t.Errorf("delegation %v", d)
		}
	}
	if len(far.Requests("CancelTask")) != 1 || len(near.Requests("Cancel")) != 1 {
		t.Errorf("%d and %d cancels", len(far.Requests("CancelTask")), len(near.Requests("Cancel")))
	}
}

// C-28: a step is canceled by its own id; what it has below ends with it, and
// the run goes on as on_member_error says.
func TestC_28_CancelOfOneDelegation(t *testing.T) {
	begin := func(t *testing.T, report bool) (r *rig, far *fakeagent.Agent, g *gate, root string) {
		t.Helper()
		far, overFar := overA2A(t, "far", held(), time.Minute)
		g = newGate("gate")
		r = start(t, overFar, g, echo("other"))
		r.newTeam(t, "inner", together("far", "gate"), "far", "gate")
		r.newTeamOf(t, team.Config{ID: "team", Scheduler: together("inner", "other"), ReportErrors: report}, "inner", "other")
		root = r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
		<-g.entered
		r.bound(t, root, "1.1")
		return r, far, g, root
	}
	t.Run("a nested team", func(t *testing.T) {
		r, far, _, root := begin(t, true)
		child := wantState(t, r.cancel(t, root+"~1"), canceled)
		wantReached(t, child, "1.1 team/inner/far: remote task TASK_STATE_WORKING, confirmed", "1.2 team/inner/gate: began to work")
		r.until(t, root, completed)
		wantState(t, r.get(t, root+"~2"), completed)
		if len(far.Requests("CancelTask")) == 0 {
			t.Error("the peer got no cancel")
		}
		equal(t, child, r.cancel(t, root+"~1"))
	})
	t.Run("a remote member of a nested team", func(t *testing.T) {
		r, far, g, root := begin(t, true)
		child := wantState(t, r.cancel(t, root+"~1.1"), canceled)
		wantReached(t, child, "1.1 team/inner/far: remote task TASK_STATE_WORKING, confirmed")
		if len(far.Requests("CancelTask")) == 0 {
			t.Error("the peer got no cancel")
		}
		wantState(t, r.get(t, root), working)
		g.open()
		r.until(t, root, completed) // inner fails, since its member did, and team goes on
		wantState(t, r.get(t, root+"~1"), failed)
		wantState(t, r.get(t, root+"~1.2"), completed)
	})
	t.Run("the run fails where nothing else is said", func(t *testing.T) {
		r, _, _, root := begin(t, false)
		wantState(t, r.cancel(t, root+"~1"), canceled)
		r.until(t, root, failed)
	})
	t.Run("a question of a peer, while a sibling works", func(t *testing.T) {
		far, overFar := overA2A(t, "far", fakeagent.Config{Default: fakeagent.Turn{Ask: "which?"}}, time.Minute)
		g := newGate("gate")
		r := start(t, overFar, g)
		r.newTeamOf(t, team.Config{ID: "team", Scheduler: together("far", "gate"), ReportErrors: true}, "far", "gate")
		root := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
		<-g.entered
		r.until(t, root+"~1", inputRequired)
		wantReached(t, wantState(t, r.cancel(t, root+"~1"), canceled), "1 team/far: remote task TASK_STATE_INPUT_REQUIRED, confirmed")
		if len(far.Requests("CancelTask")) == 0 {
			t.Error("the peer got no cancel")
		}
		g.open()
		r.until(t, root, completed)
	})
}

// counting is a model that counts its calls and holds each until it is let go.
type counting struct {
	calls   atomic.Int64
	entered chan struct{}
	spends  bool // answers in spite of the end of its context
}

func (*counting) Name() string { return "gpt" }

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

func (tool) Spec() agent.ToolSpec { return agent.ToolSpec{Name: "search"} }

func (f tool) Call(ctx context.Context, _ json.RawMessage, _ string) (*teamv1.ToolResult, error) {
	return f(ctx)
}

func (r *rig) newModelAgent(t testing.TB, id string, m agent.Model, tools ...agent.Tool) {
	t.Helper()
	a, err := team.NewModelAgent(team.ModelAgentConfig{ID: id, Model: m, Tools: tools})
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
		wantReached(t, task, "1 team/writer: asked its model", "1.3 team/writer: asked the model gpt")
		if run := a2a.RunOf(task.GetMetadata()); m.calls.Load() != 2 || run.GetSpent().GetInputTokens() != 5 || run.GetReceipt().GetSpentAfter() != nil {
			t.Errorf("%d calls, %v", m.calls.Load(), run)
		}
	})
	t.Run("what an answer costs that comes after the cancel is told", func(t *testing.T) {
		m := &counting{spends: true}
		r, root := begin(t, m)
		run := a2a.RunOf(wantState(t, r.cancel(t, root), canceled).GetMetadata())
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
		wantReached(t, wantState(t, r.cancel(t, root), canceled), "2 writer: called tool search")
	})
}

// S-24: the member is a team on another team-server: what it spent, and over A2A
// what of that came after the cancel, is in the receipt.
func TestS_24_CancelOfAnotherServersTeam(t *testing.T) {
	found := tool(func(context.Context) (*teamv1.ToolResult, error) { return &teamv1.ToolResult{Text: "x"}, nil })
	for name, over := range map[string]func(t *testing.T, at serving.Target) agent.Agent{
		"A2A": func(t *testing.T, at serving.Target) agent.Agent {
			t.Helper()
			a, err := remote.NewA2A(remote.A2AConfig{ID: "desk", Card: at.HTTP + "/desk/.well-known/agent-card.json"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = a.Close() })
			return a
		},
		"Agent service": func(t *testing.T, at serving.Target) agent.Agent {
			t.Helper()
			a, err := remote.New(remote.Config{ID: "desk", Address: at.GRPC, AgentID: "desk"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = a.Close() })
			return a
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &counting{entered: make(chan struct{}, 1), spends: true}
			desk, err := team.NewModelAgent(team.ModelAgentConfig{ID: "desk", Model: m, Tools: []agent.Tool{found}})
			if err != nil {
				t.Fatal(err)
			}
			r := start(t, over(t, serving.Serve(t, server.Config{Agent: desk})))
			r.newTeam(t, "team", through("desk"), "desk")
			root := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
			<-m.entered
			task := wantState(t, r.cancel(t, root), canceled)
			run := a2a.RunOf(task.GetMetadata())
			if e := run.GetReceipt().GetEntries(); len(e) != 1 || !e[0].GetConfirmed() || e[0].GetRemoteTaskId() == "" { // it may have told SUBMITTED last
				t.Errorf("receipt %v", e)
			}
			if run.GetSpent().GetInputTokens() != 12 {
				t.Errorf("spent %v", run.GetSpent())
			}
			if after := run.GetReceipt().GetSpentAfter(); name == "A2A" {
				equal(t, &teamv1.Spent{InputTokens: 7, OutputTokens: 3, ModelCalls: 1}, after)
			} else if after != nil {
				t.Errorf("spent after the cancel: %v", after)
			}
		})
	}
}

// restless is a model that calls a tool in every turn, at once.
type restless struct {
	mu   sync.Mutex
	keys []string // of its calls; guarded by mu
	at   int      // which call is told in reached
	hit  chan struct{}
}

func (*restless) Name() string { return "gpt" }

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
		a, err := team.NewModelAgent(team.ModelAgentConfig{ID: "writer", Model: m, Tools: []agent.Tool{found}, Limits: &teamv1.Limits{MaxTurns: new(int32(10_000))}})
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

// cancel and finish at the same moment: one of them wins, once.
func TestA_16_CancelOrFinish(t *testing.T) {
	g := &agent.Func{ID: "quick", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) { return agent.NewMessage("done"), nil }}
	r := start(t, g)
	r.newTeam(t, "inner", through("quick"), "quick")
	r.newTeam(t, "team", together("inner", "quick"), "inner", "quick")
	var wg sync.WaitGroup
	var canceledRuns atomic.Int64
	for i := range 1000 {
		root := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
		wg.Go(func() {
			for range i % 40 { // a little later each time
				r.record(t, root)
			}
			task, err := r.CancelTask(ann(t), &a2av1.CancelTaskRequest{Id: root})
			if r.oneEnd(t, root, task, err) == canceled {
				canceledRuns.Add(1)
			}
		})
		if i%8 == 7 {
			wg.Wait()
		}
	}
	wg.Wait()
	t.Logf("%d of 1000 runs were canceled", canceledRuns.Load())
}

// oneEnd checks that a run has one end, that all who tell of it agree, and that
// nothing came after it; and returns its state.
func (r *rig) oneEnd(t testing.TB, root string, told *a2av1.Task, err error) a2av1.TaskState {
	t.Helper()
	events := r.record(t, root)
	ends, commanded := 0, false
	f := a2a.NewFold(root, "")
	for _, ev := range events {
		f.Apply(ev)
		if ev.GetScope() == "" && ev.GetEnded() != nil {
			ends++
		}
		commanded = commanded || ev.GetCommanded() != nil
	}
	now := r.get(t, root)
	state := now.GetStatus().GetState()
	if ends != 1 || events[len(events)-1].GetEnded() == nil || events[len(events)-1].GetScope() != "" {
		t.Errorf("%d ends, the last event is %v", ends, events[len(events)-1])
	}
	if f.State() != state || commanded != (state == canceled) {
		t.Errorf("the record says %s, GetTask %s; a cancel is on record: %v", f.State(), state, commanded)
	}
	switch {
	case err == nil && (told.GetStatus().GetState() != canceled || state != canceled):
		t.Errorf("the cancel was told %s, the task is %s", told.GetStatus().GetState(), state)
	case err != nil && (reasonOf(err) != a2a.ReasonTaskNotCancelable || state != completed):
		t.Errorf("the cancel was told %v, the task is %s", err, state)
	}
	return state
}

// dying is a journal whose process dies at an event that is so.
type dying struct {
	a2a.Journal
	at   func(*teamv1.Event) bool
	dead atomic.Bool
}

var errDied = errors.New("died")

func (j *dying) Append(ctx context.Context, events ...*teamv1.Event) error {
	if slices.ContainsFunc(events, j.at) {
		j.dead.Store(true)
	}
	if j.dead.Load() {
		return errDied
	}
	return j.Journal.Append(ctx, events...)
}

func (j *dying) Commit(ctx context.Context) error {
	if j.dead.Load() {
		return errDied
	}
	return j.Journal.Commit(ctx)
}

// single is a run that the test itself drives.
type single struct {
	*store.Memory
	key  a2a.Key
	held a2a.Claim
}

func newSingle(t *testing.T, agentID string) *single {
	t.Helper()
	s := &single{Memory: store.NewMemory(store.MemoryConfig{}), key: a2a.Key{Owner: "acme/ann", ID: uuid.NewString()}}
	acc := &teamv1.Accepted{TaskId: s.key.ID, Agent: agentID, Owner: s.key.Owner, Message: agent.UserMessage("m", "hi")}
	if _, _, err := s.Create(t.Context(), a2a.New{Owner: s.key.Owner, Accepted: acc, MessageID: "m"}); err != nil {
		t.Fatal(err)
	}
	return s
}

// take claims the run for the next process.
func (s *single) take(t *testing.T) a2a.Claim {
	t.Helper()
	claims, _, err := s.Claim(t.Context(), "r", 1)
	if err != nil || len(claims) != 1 {
		t.Fatal(claims, err)
	}
	s.held = claims[0]
	return s.held
}

// die gives the run up, as the end of a lease does.
func (s *single) die(t *testing.T) {
	t.Helper()
	if err := s.Release(t.Context(), s.held, time.Time{}); err != nil {
		t.Fatal(err)
	}
}

func (s *single) task(t *testing.T) *a2av1.Task {
	t.Helper()
	task, _, err := s.Task(t.Context(), s.key)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func (s *single) cancel(t *testing.T) {
	t.Helper()
	in := &teamv1.Inbound{Key: "cancel/", Kind: &teamv1.Inbound_Commanded{Commanded: &teamv1.Commanded{Command: teamv1.Commanded_COMMAND_CANCEL}}}
	if _, _, err := s.Put(t.Context(), s.key, in, nil); err != nil {
		t.Fatal(err)
	}
}

// until waits until so many events are of a kind.
func (s *single) until(t *testing.T, n int, is func(*teamv1.Event) bool) {
	t.Helper()
	wake, stop := s.Watch(s.key.ID)
	defer stop()
	for {
		records, err := s.Events(t.Context(), s.key, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, rec := range records {
			if is(rec.Event) {
				seen++
			}
		}
		if seen >= n {
			return
		}
		<-wake
	}
}

// S-24: a task that was canceled before anybody drove it calls nobody.
func TestS_24_CancelBeforeTheStart(t *testing.T) {
	calls := 0
	f := &agent.Func{ID: "func", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
		calls++
		return agent.NewMessage("done"), nil
	}}
	r := start(t, f)
	r.newTeam(t, "team", through("func"), "func")
	for _, id := range []string{"func", "team"} {
		s := newSingle(t, id)
		s.cancel(t)
		if park, err := (&a2a.Runner{Agent: r.agents.Get}).Drive(t.Context(), s.take(t)); err != nil || !park.Done {
			t.Fatal(park, err)
		}
		wantState(t, s.task(t), canceled)
	}
	if calls > 0 {
		t.Errorf("%d calls", calls)
	}
}

// S-24: the process died before the peers' tasks were on record. By the Agent
// service they end by the key on record; over A2A it is told that there may be one.
func TestS_24_CrashBeforeTheTaskOfAPeerIsKnown(t *testing.T) {
	for id, want := range map[string][]string{
		"team": {"1 team/far: sent its message; the task is not known, unconfirmed", "2 team/near: sent its message; the task is not known, confirmed"},
		"far":  {" far: sent its message; the task is not known, unconfirmed"},
		"near": {" near: sent its message; the task is not known, confirmed"},
	} {
		far, overFar := overA2A(t, "far", held(), time.Minute)
		near, overNear := overService(t, "near", held(), time.Minute)
		r := start(t, overFar, overNear)
		r.newTeam(t, "team", together("far", "near"), "far", "near")
		s := newSingle(t, id)
		c := s.take(t)
		c.Journal = &dying{Journal: c.Journal, at: func(ev *teamv1.Event) bool {
			if ev.GetBound() != nil && id != "near" {
				far.Await(t, "SendStreamingMessage", 1)
			}
			if ev.GetBound() != nil && id != "far" {
				near.Await(t, "ProcessStream", 1)
			}
			return ev.GetBound() != nil
		}}
		if _, err := (&a2a.Runner{Agent: r.agents.Get}).Drive(t.Context(), c); err == nil {
			t.Fatal("it did not die")
		}
		s.die(t)
		s.cancel(t)
		sent := func() int { return len(far.Requests("SendStreamingMessage")) + len(near.Requests("ProcessStream")) }
		before := sent()
		if park, err := (&a2a.Runner{Agent: r.agents.Get}).Drive(t.Context(), s.take(t)); err != nil || !park.Done {
			t.Fatal(park, err)
		}
		wantReached(t, wantState(t, s.task(t), canceled), want...)
		if sent() != before {
			t.Errorf("%s: %d messages after the crash", id, sent()-before)
		}
	}
}

// S-24: the agent of the run is gone when the cancel comes: the peer's task is
// told as not confirmed.
func TestS_24_CancelWithoutTheAgent(t *testing.T) {
	_, overFar := overA2A(t, "far", fakeagent.Config{Default: fakeagent.Turn{Ask: "which?"}}, time.Minute)
	r := start(t, overFar)
	r.newTeam(t, "team", through("far"), "far")
	s := newSingle(t, "team")
	if park, err := (&a2a.Runner{Agent: r.agents.Get}).Drive(t.Context(), s.take(t)); err != nil || park.Done {
		t.Fatal(park, err)
	}
	s.die(t)
	s.cancel(t)
	gone := func(id string) (agent.Agent, error) {
		return nil, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no agent %q", id)
	}
	if park, err := (&a2a.Runner{Agent: gone}).Drive(t.Context(), s.take(t)); err != nil || !park.Done {
		t.Fatal(park, err)
	}
	wantReached(t, wantState(t, s.task(t), canceled), "1 team/far: waiting for an answer, unconfirmed")
}

// S-24: the process dies at every event from the cancel on, up to the end; the next
// one begins with what is on record, sends nothing, and ends the peers' tasks.
func TestS_24_CrashAfterTheCancel(t *testing.T) {
	crashes := int64(0)
	for ended := false; !ended; crashes++ {
		ended = crashAfterCancel(t, crashes)
	}
	if crashes < 4 { // the cancel, three steps, the end
		t.Errorf("%d crashes", crashes)
	}
}

// crashAfterCancel lets a run die so many events after its cancel, and reports
// whether it ended before.
func crashAfterCancel(t *testing.T, events int64) (ended bool) {
	t.Helper()
	far, overFar := overA2A(t, "far", held(), time.Minute)
	near, overNear := overService(t, "near", held(), time.Minute)
	r := start(t, overFar, overNear)
	r.newTeam(t, "inner", together("far", "near"), "far", "near")
	r.newTeam(t, "team", through("inner"), "inner")
	s := newSingle(t, "team")
	runner := &a2a.Runner{Agent: r.agents.Get, Replica: "one"}
	c := s.take(t)
	var seen atomic.Int64 // events from the cancel on
	j := &dying{Journal: c.Journal, at: func(ev *teamv1.Event) bool {
		return (ev.GetCommanded() != nil || seen.Load() > 0) && seen.Add(1) > events
	}}
	done := make(chan error, 1)
	go func() {
		_, err := runner.Drive(t.Context(), a2a.Claim{Root: c.Root, Epoch: c.Epoch, Journal: j})
		done <- err
	}()
	s.until(t, 2, func(ev *teamv1.Event) bool { return ev.GetBound() != nil })
	s.cancel(t)
	if err := <-done; err == nil {
		return true
	}
	s.die(t)
	sent := func() int { return len(far.Requests("SendStreamingMessage")) + len(near.Requests("ProcessStream")) }
	before := sent()
	if park, err := (&a2a.Runner{Agent: r.agents.Get, Replica: "two"}).Drive(t.Context(), s.take(t)); err != nil || !park.Done {
		t.Fatal(events, park, err)
	}
	wantReached(t, wantState(t, s.task(t), canceled),
		"1 team/inner: gave work to far, near",
		"1.1 team/inner/far: remote task TASK_STATE_WORKING, confirmed",
		"1.2 team/inner/near: remote task TASK_STATE_WORKING, confirmed",
	)
	if sent() != before {
		t.Errorf("%d messages after the crash", sent()-before)
	}
	if len(far.Requests("CancelTask")) == 0 || len(near.Requests("Cancel")) == 0 {
		t.Error("a peer got no cancel")
	}
	return false
}
