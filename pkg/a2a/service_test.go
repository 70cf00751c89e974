package a2a_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

// call is a call of the Agent service with a fresh key.
func call(id, text string) *teamv1.ProcessRequest {
	return &teamv1.ProcessRequest{AgentId: id, Key: uuid.NewString(), Message: agent.UserMessage(uuid.NewString(), text)}
}

func TestProcess(t *testing.T) {
	t.Run("the conversation is that of the call, else that of its message", func(t *testing.T) {
		r := start(t, echo("echo"))
		for _, c := range [][2]string{{"call", ""}, {"", "message"}} {
			req, want := call("echo", "hi"), c[0]+c[1]
			req.ContextId, req.Message.ContextId = c[0], c[1]
			if _, err := r.Process(ann(t), req); err != nil {
				t.Fatal(err)
			}
			if page, err := r.ListTasks(ann(t), &a2av1.ListTasksRequest{ContextId: want}); err != nil || page.GetTotalSize() != 1 {
				t.Errorf("%q: %v, %v", want, page, err)
			}
		}
	})
	t.Run("R-000-14 the answer", func(t *testing.T) {
		r := start(t, echo("echo"))
		req := call("echo", "hi")
		resp, err := r.Process(ann(t), req)
		if err != nil {
			t.Fatal(err)
		}
		if got := agent.Text(resp.GetMessage()); got != "echo: hi" {
			t.Errorf("answer is %q", got)
		}
		task := wantState(t, r.get(t, resp.GetMessage().GetTaskId()), completed)
		if task.GetId() != r.onlyTask(t).GetId() {
			t.Error("the task is not listed")
		}
		again, err := r.Process(ann(t), req)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, resp, again)
	})
	t.Run("an agent that may reply directly has a task too", func(t *testing.T) {
		r := start(t, direct("direct"))
		resp, err := r.Process(ann(t), call("direct", "hi"))
		if err != nil {
			t.Fatal(err)
		}
		wantState(t, r.get(t, resp.GetMessage().GetTaskId()), completed)
	})
	t.Run("a run that fails is an error with its reason and code", func(t *testing.T) {
		r := start(t, failing("public", agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "gone")), failing("internal", errors.New("secret")))
		for id, want := range map[string]*agent.Error{
			"public":   {Reason: agent.ReasonUnavailable, Code: agent.CodeUnavailable, Message: "gone"},
			"internal": {Reason: agent.ReasonInternal, Code: agent.CodeInternal, Message: "internal error"},
		} {
			_, err := r.Process(ann(t), call(id, "x"))
			e := agent.AsError(err)
			if e.Reason != want.Reason || e.Code != want.Code || e.Message != want.Message || e.Details["task_id"] == "" {
				t.Errorf("%s: %+v", id, e)
			}
		}
	})
	t.Run("INPUT_REQUIRED carries the task and the question", func(t *testing.T) {
		r := start(t, script(t, "ask", ask("who?"), say("hello {{answer}}")))
		_, err := r.Process(ann(t), call("ask", "x"))
		wantError(t, err, agent.ReasonInputRequired)
		e := agent.AsError(err)
		if e.Code != agent.CodeFailedPrecondition || e.Details["question"] == "" {
			t.Errorf("%+v", e)
		}
		back := call("ask", "me")
		back.TaskId, back.Question = e.Details["task_id"], e.Details["question"]
		resp, err := r.Process(ann(t), back)
		if err != nil {
			t.Fatal(err)
		}
		if got := agent.Text(resp.GetMessage()); got != "hello me" {
			t.Errorf("answer is %q", got)
		}
	})
	t.Run("R-000-25 WAIT_TIMEOUT", func(t *testing.T) {
		r := start(t, newGate("gate"))
		ctx, stop := context.WithTimeout(ann(t), 50*time.Millisecond)
		defer stop()
		_, err := r.Process(ctx, call("gate", "x"))
		wantError(t, err, agent.ReasonWaitTimeout)
	})
	t.Run("R-004-22 C-13 the agent hands over to a member of the caller's", func(t *testing.T) {
		r := start(t, handsOver{&agent.Func{}})
		req := call("swap", "x")
		req.History = []*a2av1.Message{agent.UserMessage("", "before")}
		req.Transfers = []*teamv1.TransferTarget{{Id: "billing", Description: "Knows prices."}}
		resp, err := r.Process(ann(t), req)
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.GetTransfer(); got.GetTo() != "billing" || got.GetMessage() != "before" || resp.GetMessage() != nil {
			t.Errorf("answer is %v", resp)
		}
	})
	t.Run("T-02 what a caller says of its members is external", func(t *testing.T) {
		r := start(t, echo("echo"))
		req := call("echo", "x")
		req.Transfers = []*teamv1.TransferTarget{{Id: "b", Description: strings.Repeat("x", 1<<20), External: false}}
		got := r.events(t, ann(t), req, 0)[0].GetEvent().GetAccepted().GetTransfers()
		if len(got) != 1 || got[0].GetId() != "b" || !got[0].GetExternal() || len(got[0].GetDescription()) > 5000 {
			t.Errorf("%d targets; external: %t; %d bytes", len(got), got[0].GetExternal(), len(got[0].GetDescription()))
		}
	})
	t.Run("what a caller may not say", func(t *testing.T) {
		r := start(t, echo("echo"))
		for field, set := range map[string]func(*teamv1.ProcessRequest){
			"recorded":          func(req *teamv1.ProcessRequest) { req.Recorded = []*teamv1.Event{{}} },
			"history":           func(req *teamv1.ProcessRequest) { req.History = make([]*a2av1.Message, 101) },
			"transfers":         func(req *teamv1.ProcessRequest) { req.Transfers = make([]*teamv1.TransferTarget, 65) },
			"message":           func(req *teamv1.ProcessRequest) { req.Message = nil },
			"key":               func(req *teamv1.ProcessRequest) { req.Key = "a/b" },
			"contextId":         func(req *teamv1.ProcessRequest) { req.ContextId, req.Message.ContextId = "a", "b" },
			"taskId":            func(req *teamv1.ProcessRequest) { req.TaskId, req.Message.TaskId = "a", "b" },
			"message.messageId": func(req *teamv1.ProcessRequest) { req.Message.MessageId = "" },
		} {
			req := call("echo", "x")
			set(req)
			_, err := r.Process(ann(t), req)
			wantFields(t, err, field)
			_, err = r.ProcessStream(ann(t), &teamv1.ProcessStreamRequest{Request: req})
			wantFields(t, err, field)
		}
		req := call("echo", "x")
		req.Scope = "1"
		_, err := r.Process(ann(t), req)
		wantFields(t, err, "recorded")
		_, err = r.ProcessStream(ann(t), &teamv1.ProcessStreamRequest{})
		wantFields(t, err, "request")
	})
	t.Run("R-000-36 depth and path go on record", func(t *testing.T) {
		r := start(t, echo("echo"))
		req := call("echo", "x")
		req.Path, req.Depth = []string{"theirs", "team"}, 2
		events := r.events(t, agent.WithDepth(ann(t), 3), req, 0)
		acc := events[0].GetEvent().GetAccepted()
		if acc.GetDepth() != 3 || !cmp.Equal(acc.GetPath(), req.GetPath()) {
			t.Errorf("accepted: %v", acc)
		}
	})
}

// events are all that ProcessStream tells.
func (r *rig) events(t testing.TB, ctx context.Context, req *teamv1.ProcessRequest, after int64) []*teamv1.ProcessStreamResponse {
	t.Helper()
	updates, err := r.ProcessStream(ctx, &teamv1.ProcessStreamRequest{Request: req, After: after})
	if err != nil {
		t.Fatal(err)
	}
	var out []*teamv1.ProcessStreamResponse
	for u, err := range updates {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, u)
	}
	return out
}

func TestProcessStream(t *testing.T) {
	t.Run("the journal without owner, pins and claims", func(t *testing.T) {
		r := start(t, echo("one"), echo("two"))
		r.newTeam(t, "team", through("one", "two"), "one", "two")
		req := call("team", "hi")
		events := r.events(t, ann(t), req, 0)
		for _, u := range events {
			acc := u.GetEvent().GetAccepted()
			if u.GetEvent().GetClaimed() != nil || acc.GetOwner() != "" || acc.GetPins() != nil || acc.GetSeed() != 0 {
				t.Errorf("told: %v", u)
			}
			if u.GetTaskId() == "" {
				t.Errorf("no task: %v", u)
			}
		}
		last := events[len(events)-1].GetEvent()
		if got := agent.Text(last.GetEnded().GetReply()); got != "echo: echo: hi" || last.GetScope() != "" {
			t.Errorf("the last event is %v", last)
		}
		for _, cut := range []int{1, len(events) / 2, len(events) - 1} {
			rest := r.events(t, ann(t), req, events[cut-1].GetEvent().GetSeq())
			if len(rest) != len(events)-cut {
				t.Fatalf("behind event %d there are %d more, not %d", cut, len(rest), len(events)-cut)
			}
			for i := range rest {
				equal(t, events[cut+i], rest[i])
			}
		}
	})
	t.Run("it ends where the run waits, and goes on with the answer", func(t *testing.T) {
		r := start(t, script(t, "ask", ask("who?"), say("hello {{answer}}")))
		req := call("ask", "x")
		events := r.events(t, ann(t), req, 0)
		last := events[len(events)-1]
		if len(last.GetEvent().GetWaiting().GetQuestions()) != 1 {
			t.Fatalf("the last event is %v", last)
		}
		back := call("ask", "me")
		back.TaskId, back.Question = last.GetTaskId(), last.GetEvent().GetWaiting().GetQuestions()[0]
		more := r.events(t, ann(t), back, last.GetEvent().GetSeq())
		if more[0].GetEvent().GetSeq() <= last.GetEvent().GetSeq() {
			t.Errorf("it goes on with %v", more[0])
		}
		end := more[len(more)-1].GetEvent().GetEnded()
		if got := agent.Text(end.GetReply()); got != "hello me" {
			t.Errorf("it ends with %v", end)
		}
		whole := r.events(t, ann(t), req, 0)
		if got := whole[len(whole)-1].GetEvent(); got.GetEnded() == nil {
			t.Errorf("told again, it ends with %v", got)
		}
	})
}

func TestP10_LimitsOfProcessStreams(t *testing.T) {
	g := newGate("gate")
	r := startWith(t, a2a.Config{Settings: settings.Of(&teamv1.ServerSettings{Streams: &teamv1.StreamSettings{PerTask: proto.Int32(2), PerCaller: proto.Int32(3)}})}, g, echo("echo"))
	first, other, third := call("gate", "x"), call("gate", "y"), call("gate", "z")
	ctx, leave := context.WithCancel(ann(t))
	var stops []func()
	open := func(ctx context.Context, req *teamv1.ProcessRequest) error {
		updates, err := r.ProcessStream(ctx, &teamv1.ProcessStreamRequest{Request: req})
		if err == nil {
			next, stop := iter.Pull2(updates)
			next()
			stops = append(stops, stop)
		}
		return err
	}
	for range 2 {
		if err := open(ann(t), first); err != nil {
			t.Fatal(err)
		}
	}
	wantError(t, open(ann(t), first), agent.ReasonInsufficientResources)                          // of the task
	if _, err := r.ProcessStream(ctx, &teamv1.ProcessStreamRequest{Request: other}); err != nil { // nobody reads it
		t.Fatal(err)
	}
	wantError(t, open(ann(t), third), agent.ReasonInsufficientResources) // of the owner
	_, err := r.SendStreamingMessage(ann(t), message("echo", "x"))
	wantError(t, err, agent.ReasonInsufficientResources)
	if page, err := r.ListTasks(ann(t), &a2av1.ListTasksRequest{}); err != nil || page.GetTotalSize() != 2 {
		t.Errorf("%v %v: a call that was refused has begun a task", page, err)
	}
	stops[0]()
	if err := open(ann(t), first); err != nil {
		t.Errorf("a place that was given back: %v", err)
	}
	if err := open(bob(t), call("echo", "x")); err != nil {
		t.Errorf("another owner: %v", err)
	}
	g.open()
	leave()
	for _, stop := range stops {
		stop()
	}
	r.empty(t)
}

func TestServiceCancel(t *testing.T) {
	for name, by := range map[string]func(task, key string) *teamv1.CancelRequest{
		"by task": func(task, _ string) *teamv1.CancelRequest {
			return &teamv1.CancelRequest{AgentId: "gate", TaskId: task}
		},
		"by key": func(_, key string) *teamv1.CancelRequest { return &teamv1.CancelRequest{AgentId: "gate", Key: key} },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate("gate")
			r := start(t, g)
			req := call("gate", "x")
			done := make(chan error, 1)
			go func() {
				_, err := r.Process(ann(t), req)
				done <- err
			}()
			<-g.entered
			resp, err := r.Cancel(ann(t), by(r.onlyTask(t).GetId(), req.GetKey()))
			if err != nil {
				t.Fatal(err)
			}
			if resp.GetState() != canceled {
				t.Errorf("state is %s", resp.GetState())
			}
			wantError(t, <-done, agent.ReasonCanceled)
			_, err = r.Cancel(bob(t), by(r.onlyTask(t).GetId(), req.GetKey()))
			wantError(t, err, a2aerror.ReasonTaskNotFound)
		})
	}
	_, err := start(t, echo("echo")).Cancel(ann(t), &teamv1.CancelRequest{})
	wantFields(t, err, "taskId")
}

func TestInfoAndHealth(t *testing.T) {
	sick := echo("sick")
	sick.Health = func(context.Context) (*teamv1.Health, error) { return nil, errors.New("secret") }
	r := start(t, echo("echo"), sick)
	t.Run("info", func(t *testing.T) {
		resp, err := r.Info(ann(t), &teamv1.InfoRequest{AgentId: "echo"})
		if err != nil || resp.GetInfo().GetId() != "echo" {
			t.Errorf("%v, %v", resp, err)
		}
		if err := r.agents.Register("alias", echo("echo")); err != nil {
			t.Fatal(err)
		}
		if resp, err := r.Info(ann(t), &teamv1.InfoRequest{AgentId: "alias"}); err != nil || resp.GetInfo().GetId() != "alias" {
			t.Errorf("R-000-05 it is known by the id it is served under: %v, %v", resp, err)
		}
		_, err = r.Info(ann(t), &teamv1.InfoRequest{AgentId: "nobody"})
		wantError(t, err, agent.ReasonAgentNotFound)
	})
	t.Run("health", func(t *testing.T) {
		resp, err := r.HealthCheck(ann(t), &teamv1.HealthCheckRequest{AgentId: "echo"})
		if err != nil || !resp.GetHealthy() || !resp.GetUsable() {
			t.Errorf("%v, %v", resp, err)
		}
		resp, err = r.HealthCheck(ann(t), &teamv1.HealthCheckRequest{AgentId: "sick"})
		if err != nil || resp.GetHealthy() || resp.GetDetail() != "internal error" {
			t.Errorf("%v, %v", resp, err)
		}
		_, err = r.HealthCheck(ann(t), &teamv1.HealthCheckRequest{AgentId: "nobody"})
		wantError(t, err, agent.ReasonAgentNotFound)
	})
}

func TestCard(t *testing.T) {
	skilled := echo("skilled")
	skilled.Name, skilled.Description = "Skilled", "Knows things."
	skilled.Skills = []*teamv1.Skill{{Id: "search", Name: "Search", Description: "Finds.", Tags: []string{"web"}}, {Id: "bare"}}
	live := settings.Of(nil)
	live.Store(&settings.Snapshot{ServerSettings: live.Load().ServerSettings, BaseURL: "https://agents.example.com", Address: "agents.example.com:443"})
	r := startWith(t, a2a.Config{Settings: live}, echo("plain"), skilled)
	r.newTeamOf(t, team.Config{ID: "both", Mode: "workflow", Scheduler: through("plain", "skilled")}, "plain", "skilled")
	r.newTeamOf(t, team.Config{ID: "bare", Mode: "workflow", Scheduler: through("plain")}, "plain")
	card := func(t *testing.T, id string) *a2av1.AgentCard {
		t.Helper()
		c, _, err := r.Card(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Run("A-10 interfaces of each agent, with a tenant only where the URL does not name it", func(t *testing.T) {
		var got []string
		for _, i := range card(t, "skilled").GetSupportedInterfaces() {
			got = append(got, i.GetProtocolBinding()+" "+i.GetUrl()+" "+i.GetTenant()+" "+i.GetProtocolVersion())
		}
		want := []string{
			"JSONRPC https://agents.example.com/skilled/rpc  1.0", "HTTP+JSON https://agents.example.com/skilled  1.0",
			"GRPC agents.example.com:443 skilled 1.0",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("R-000-05 names and tags", func(t *testing.T) {
		for id, want := range map[string]string{"plain": "plain agent", "skilled": "Skilled web", "bare": "bare workflow"} {
			c := card(t, id)
			if got := c.GetName() + " " + c.GetSkills()[0].GetTags()[0]; got != want {
				t.Errorf("%s: %q, want %q", id, got, want)
			}
		}
	})
	t.Run("required fields are never empty", func(t *testing.T) {
		for _, id := range []string{"plain", "skilled", "both"} {
			c := card(t, id)
			if c.GetName() == "" || c.GetDescription() == "" || c.GetVersion() == "" || len(c.GetDefaultInputModes()) == 0 || len(c.GetDefaultOutputModes()) == 0 || len(c.GetSkills()) == 0 {
				t.Errorf("%s: %v", id, c)
			}
			for _, s := range c.GetSkills() {
				if s.GetId() == "" || s.GetName() == "" || s.GetDescription() == "" || len(s.GetTags()) == 0 {
					t.Errorf("%s: skill %v", id, s)
				}
			}
		}
	})
	t.Run("R-000-12 an agent without skills is one itself", func(t *testing.T) {
		if s := card(t, "plain").GetSkills(); len(s) != 1 || s[0].GetId() != "plain" {
			t.Errorf("skills %v", s)
		}
	})
	t.Run("R-000-08 R-000-09 R-000-10 team facts", func(t *testing.T) {
		e := card(t, "both").GetCapabilities().GetExtensions()
		if len(e) != 1 || e[0].GetUri() != project.TeamRunURI {
			t.Fatalf("extensions %v", e)
		}
		if diff := cmp.Diff(map[string]any{"type": "team", "mode": "workflow", "member_count": "2"}, e[0].GetParams().AsMap()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("unknown", func(t *testing.T) {
		for _, id := range []string{"nobody", ""} {
			_, _, err := r.Card(t.Context(), id)
			wantError(t, err, agent.ReasonAgentNotFound)
		}
	})
	t.Run("extended card", func(t *testing.T) {
		_, err := r.GetExtendedAgentCard(ann(t), &a2av1.GetExtendedAgentCardRequest{Tenant: "plain"})
		wantError(t, err, a2aerror.ReasonUnsupportedOperation)
	})
	t.Run("push notifications", func(t *testing.T) {
		if !card(t, "plain").GetCapabilities().GetPushNotifications() {
			t.Error("the card does not tell of them")
		}
	})
}

// handsOver hands over to the first member it may, with the first message it is shown.
type handsOver struct{ *agent.Func }

func (handsOver) Info(context.Context) (*teamv1.AgentInfo, error) {
	return &teamv1.AgentInfo{Id: "swap", Name: "swap"}, nil
}

func (handsOver) Process(_ context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		t := &teamv1.Transfer{To: req.GetTransfers()[0].GetId(), Message: agent.Text(req.GetHistory()[0])}
		yield(agent.ReplyEvent(req, &teamv1.Reply{Result: &teamv1.Reply_Transfer{Transfer: t}}), nil)
	}
}
