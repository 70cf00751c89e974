package a2a_test

import (
	"context"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/remote"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/workflow"
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
	records, err := r.store.Events(ann(t), runs.Key{Owner: "acme/ann", ID: root}, 0, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	var events []*teamv1.Event
	for _, rec := range records {
		events = append(events, rec.Event)
	}
	return events
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

// workflowOf is a workflow whose steps run at the same time.
func workflowOf(t testing.TB, members ...string) *workflow.Workflow {
	t.Helper()
	var steps []workflow.Step
	for _, m := range members {
		steps = append(steps, workflow.Step{ID: m, Member: m})
	}
	w, err := workflow.New(workflow.Config{Steps: steps})
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
	far, overFar := serving.OverA2A(t, "far", serving.Held(), time.Minute)
	near, overNear := serving.OverService(t, "near", serving.Held(), time.Minute)
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
	if took := time.Since(before); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	<-hungUp
	if len(far.Requests("CancelTask")) == 0 || len(near.Requests("Cancel")) == 0 {
		t.Error("a peer got no cancel")
	}
	for _, id := range []string{"~1", "~1.1", "~1.1.1", "~1.1.2", "~1.1.3"} {
		wantState(t, r.get(t, root+id), canceled)
	}
	serving.WantReached(t, task,
		"1 company/newsroom: gave work to desk",
		"1.1 company/newsroom/desk: gave work to gate, far, near",
		"1.1.1 company/newsroom/desk/gate: began to work",
		"1.1.2 company/newsroom/desk/far: remote task TASK_STATE_WORKING, confirmed",
		"1.1.3 company/newsroom/desk/near: remote task TASK_STATE_WORKING, confirmed",
	)
	for _, e := range project.RunOf(task.GetMetadata()).GetReceipt().GetEntries() {
		remote := strings.HasSuffix(e.GetAgent(), "/far") || strings.HasSuffix(e.GetAgent(), "/near")
		if remote == (e.GetRemoteTaskId() == "") || e.GetOutcome() != teamv1.Outcome_OUTCOME_CANCELED {
			t.Errorf("entry %v", e)
		}
	}
	if c := far.Requests("CancelTask")[0].Body.(*a2av1.CancelTaskRequest); c.GetId() != project.RunOf(task.GetMetadata()).GetReceipt().GetEntries()[3].GetRemoteTaskId() {
		t.Errorf("the peer was asked to end %s", c.GetId())
	}
	equal(t, task, r.get(t, root))
	equal(t, task, r.cancel(t, root))
	sameTask(t, follow(t, updates).task, task)
	if own := serving.Reached(r.get(t, root+"~1.1.2")); len(own) != 1 {
		t.Errorf("the peer's step shows %v", own)
	}
}

// S-24: a peer names its task only after the cancel.
func TestS_24_TaskOfAPeerArrivesLate(t *testing.T) {
	before := make(chan struct{})
	cfg := serving.Held()
	cfg.Default.Before = before
	far, overFar := serving.OverA2A(t, "far", cfg, time.Minute)
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
	serving.WantReached(t, task, "1 team/far: remote task TASK_STATE_WORKING, confirmed")
	e := project.RunOf(task.GetMetadata()).GetReceipt().GetEntries()[0]
	if c := far.Requests("CancelTask"); len(c) == 0 || c[0].Body.(*a2av1.CancelTaskRequest).GetId() != e.GetRemoteTaskId() {
		t.Errorf("cancels %v, entry %v", c, e)
	}
}

// S-24: a peer takes the cancel and goes on.
func TestS_24_PeerThatDoesNotConfirm(t *testing.T) {
	for name, over := range map[string]func(testing.TB, string, fakeagent.Config, time.Duration) (*fakeagent.Agent, agent.Agent){
		"A2A": serving.OverA2A, "Agent service": serving.OverService,
	} {
		t.Run(name, func(t *testing.T) {
			cfg := serving.Held()
			cfg.Default.Deaf = true
			f, a := over(t, "far", cfg, 200*time.Millisecond)
			r := start(t, a)
			r.newTeam(t, "team", through("far"), "far")
			root := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
			r.bound(t, root, "1")
			task := wantState(t, r.cancel(t, root), canceled)
			serving.WantReached(t, task, "1 team/far: remote task TASK_STATE_WORKING, unconfirmed")
			if len(f.Requests("CancelTask"))+len(f.Requests("Cancel")) == 0 {
				t.Error("the peer got no cancel")
			}
			if msg := project.RunOf(r.get(t, root+"~1").GetMetadata()).GetError().GetMessage(); !strings.Contains(msg, "has not confirmed") {
				t.Errorf("the step says %q", msg)
			}
		})
	}
}

// S-24: the remote agent is the task's own.
func TestS_24_RemoteRoot(t *testing.T) {
	_, a := serving.OverA2A(t, "far", serving.Held(), time.Minute)
	r := start(t, a)
	root := r.send(t, ann(t), atOnce(message("far", "hi"))).GetId()
	r.bound(t, root, "")
	serving.WantReached(t, wantState(t, r.cancel(t, root), canceled), " far: remote task TASK_STATE_WORKING, confirmed")
}

// S-24: nobody drives the run when the cancel comes.
func TestS_24_CancelOfAParkedRun(t *testing.T) {
	cfg := fakeagent.Config{Default: fakeagent.Turn{Ask: "which?"}}
	far, overFar := serving.OverA2A(t, "far", cfg, time.Minute)
	near, overNear := serving.OverService(t, "near", cfg, time.Minute)
	r := start(t, overFar, overNear, script(t, "asker", ask("who?")))
	r.newTeam(t, "inner", together("near", "asker"), "near", "asker")
	r.newTeam(t, "team", together("far", "inner"), "far", "inner")
	root := wantState(t, r.send(t, ann(t), message("team", "hi")), inputRequired).GetId()
	played := far.Played() + near.Played()
	task := wantState(t, r.cancel(t, root), canceled)
	serving.WantReached(t, task,
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
	far, overFar := serving.OverA2A(t, "far", serving.Held(), time.Minute)
	near, overNear := serving.OverService(t, "near", serving.Held(), time.Minute)
	r := start(t, breaking{overFar}, breaking{overNear})
	limits := &teamv1.Limits{Retry: &teamv1.Retry{Backoff: durationpb.New(time.Hour)}}
	r.newTeamOf(t, team.Config{ID: "team", Scheduler: together("far", "near"), Limits: limits}, "far", "near")
	root := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
	r.recorded(t, root, 2, func(ev *teamv1.Event) bool { return ev.GetRetried() != nil })
	serving.WantReached(t, wantState(t, r.cancel(t, root), canceled),
		"1 team/far: remote task TASK_STATE_WORKING, confirmed",
		"2 team/near: remote task TASK_STATE_WORKING, confirmed",
	)
	if len(far.Requests("CancelTask")) == 0 || len(near.Requests("Cancel")) == 0 {
		t.Error("a peer got no cancel")
	}
}

// R-002-8.2: the time of a member runs out: its task at the peer ends too.
func TestR_002_8_2_TimeoutEndsTheTaskOfAPeer(t *testing.T) {
	far, overFar := serving.OverA2A(t, "far", serving.Held(), time.Minute)
	near, overNear := serving.OverService(t, "near", serving.Held(), time.Minute)
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
	for _, d := range project.RunOf(task.GetMetadata()).GetFailedDelegations() {
		if d.GetOutcome() != teamv1.Outcome_OUTCOME_TIMED_OUT {
			t.Errorf("delegation %v", d)
		}
	}
	if len(far.Requests("CancelTask")) != 1 || len(near.Requests("Cancel")) != 1 {
		t.Errorf("%d and %d cancels", len(far.Requests("CancelTask")), len(near.Requests("Cancel")))
	}
}

func (*counting) Name() string { return "gpt" }

func (tool) Spec() agent.ToolSpec { return agent.ToolSpec{Name: "search"} }

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
			desk, err := leader.NewAgent(leader.AgentConfig{ID: "desk", Model: m, Tools: []agent.Tool{found}})
			if err != nil {
				t.Fatal(err)
			}
			r := start(t, over(t, serving.Serve(t, server.Config{Agent: desk})))
			r.newTeam(t, "team", through("desk"), "desk")
			root := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
			<-m.entered
			task := wantState(t, r.cancel(t, root), canceled)
			run := project.RunOf(task.GetMetadata())
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

func (*restless) Name() string { return "gpt" }
