package tests

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/faulty"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// hasty are pauses for tests.
var hasty = server.PushPolicy{First: 2 * time.Millisecond, Most: 20 * time.Millisecond, Timeout: time.Second, Lease: 2 * time.Second}

// hook is a configuration of a task.
func hook(task, id, url string) *a2av1.TaskPushNotificationConfig {
	return &a2av1.TaskPushNotificationConfig{
		TaskId: task, Id: id, Url: url, Token: "canary-token",
		Authentication: &a2av1.AuthenticationInfo{Scheme: "Bearer", Credentials: "canary-credentials"},
	}
}

// whichAgent asks what it is sent, and answers with the answer.
func whichAgent(t testing.TB) agent.Agent {
	t.Helper()
	return script(t, "asks", &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Ask{Ask: "which?"}}, &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Text{Text: "{{answer}}"}})
}

// TestA_18_Configurations: the calls about configurations, over each binding.
func TestA_18_Configurations(t *testing.T) {
	t.Parallel()
	keys := []*teamv1.ApiKey{rig.Key("acme", "ann"), rig.Key("acme", "bob")}
	open := rig.Serve(t, server.Config{Agents: rig.Manager(t, whichAgent(t)), Settings: rig.Keys(keys...)})
	target, bob := open.As("acme", "ann"), rig.Clients(t, open.As("acme", "bob"))
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		p := c.(rig.PushClient)
		ctx := t.Context()
		task := send(t, c, rig.Text("asks", "m-"+c.Binding(), "x")).GetId()
		url := "http://127.0.0.1:1/hook"
		made, err := p.CreatePush(ctx, hook(task, "", url))
		if err != nil || made.GetId() == "" || made.GetTaskId() != task || made.GetUrl() != url {
			t.Fatalf("created is %v, %v", made, err)
		}
		if made.GetToken() != a2a.Masked || made.GetAuthentication().GetScheme() != "Bearer" || made.GetAuthentication().GetCredentials() != a2a.Masked {
			t.Errorf("A-21 created shows %v", made)
		}
		for _, id := range []string{"b", "a"} {
			if _, err := p.CreatePush(ctx, &a2av1.TaskPushNotificationConfig{Tenant: "asks", TaskId: task, Id: id, Url: url}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := p.GetPush(ctx, &a2av1.GetTaskPushNotificationConfigRequest{TaskId: task, Id: made.GetId()})
		if diff := cmp.Diff(made, got, protocmp.Transform()); err != nil || diff != "" {
			t.Errorf("got %v (-created +got):\n%s", err, diff)
		}
		got.Url += "/2"
		if again, err := p.CreatePush(ctx, got); err != nil || again.GetUrl() != got.GetUrl() || again.GetToken() != a2a.Masked {
			t.Errorf("what was read, sent back: %v, %v", again, err)
		}
		got.Url = "http://localhost:1/hook"
		_, err = p.CreatePush(ctx, got)
		wantReason(t, err, agent.ReasonInvalidRequest, "authentication.credentials", "token") // the secrets are not its
		page, err := p.ListPushes(ctx, &a2av1.ListTaskPushNotificationConfigsRequest{Tenant: "asks", TaskId: task, PageSize: 2})
		if err != nil || len(page.GetConfigs()) != 2 || page.GetNextPageToken() == "" {
			t.Fatalf("a page: %v, %v", page, err)
		}
		rest, err := p.ListPushes(ctx, &a2av1.ListTaskPushNotificationConfigsRequest{TaskId: task, PageSize: 2, PageToken: page.GetNextPageToken()})
		if err != nil || len(rest.GetConfigs()) != 1 || rest.GetNextPageToken() != "" {
			t.Errorf("the rest: %v, %v", rest, err)
		}
		if text := fmt.Sprint(page, rest, got, made); strings.Contains(text, "canary") {
			t.Errorf("A-21 a secret is shown: %s", text)
		}
		for _, who := range bob {
			b := who.(rig.PushClient)
			if b.Binding() == c.Binding() {
				foreign(t, b, task, made.GetId())
			}
		}
		for range 2 { // idempotent
			if err := p.DeletePush(ctx, &a2av1.DeleteTaskPushNotificationConfigRequest{TaskId: task, Id: made.GetId()}); err != nil {
				t.Fatal(err)
			}
		}
		_, err = p.GetPush(ctx, &a2av1.GetTaskPushNotificationConfigRequest{TaskId: task, Id: made.GetId()})
		wantReason(t, err, a2aerror.ReasonTaskNotFound)
		for i := range runs.MaxPushTask - 2 {
			if _, err := p.CreatePush(ctx, hook(task, fmt.Sprint("n", i), url)); err != nil {
				t.Fatal(err)
			}
		}
		_, err = p.CreatePush(ctx, hook(task, "one-more", url))
		wantReason(t, err, agent.ReasonInsufficientResources)
	})
}

// foreign: to others a task is not there.
func foreign(t *testing.T, c rig.PushClient, task, id string) {
	t.Helper()
	for _, name := range []string{task, "no-such-task"} {
		_, err1 := c.CreatePush(t.Context(), hook(name, "x", "http://127.0.0.1:1"))
		_, err2 := c.GetPush(t.Context(), &a2av1.GetTaskPushNotificationConfigRequest{TaskId: name, Id: id})
		_, err3 := c.ListPushes(t.Context(), &a2av1.ListTaskPushNotificationConfigsRequest{TaskId: name})
		err4 := c.DeletePush(t.Context(), &a2av1.DeleteTaskPushNotificationConfigRequest{TaskId: name, Id: id})
		for _, err := range []error{err1, err2, err3, err4} {
			f := rig.Fault(err)
			if f == nil || f.Reason != a2aerror.ReasonTaskNotFound || f.Message != fmt.Sprintf("there is no task %q", name) {
				t.Errorf("A-21 of %s: %v", name, err)
			}
		}
	}
}

func wantReason(t *testing.T, err error, reason string, fields ...string) {
	t.Helper()
	f := rig.Fault(err)
	if f == nil || f.Reason != reason || !slices.Equal(f.Fields, fields) {
		t.Errorf("got %v %v, want %s %v", err, f, reason, fields)
	}
	if f != nil && strings.Contains(f.Message, "canary") {
		t.Errorf("A-21 the error shows a secret: %v", err)
	}
}

// TestA_04_A_18_BadConfigurations: what is wrong is named, and nothing is stored.
func TestA_04_A_18_BadConfigurations(t *testing.T) {
	t.Parallel()
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, whichAgent(t))})
	task := send(t, rig.NewREST(target), rig.Text("asks", "m1", "x")).GetId()
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		p := c.(rig.PushClient)
		for _, bad := range []struct {
			change func(*a2av1.TaskPushNotificationConfig)
			fields []string
		}{
			{func(c *a2av1.TaskPushNotificationConfig) { c.Url = "" }, []string{"url"}},
			{func(c *a2av1.TaskPushNotificationConfig) { c.Url = "/hook" }, []string{"url"}},
			{func(c *a2av1.TaskPushNotificationConfig) { c.Url = "ftp://example.com/x" }, []string{"url"}},
			{func(c *a2av1.TaskPushNotificationConfig) { c.Url = "https://" }, []string{"url"}},
			{func(c *a2av1.TaskPushNotificationConfig) { c.Url = "https://:443/x" }, []string{"url"}},
			{func(c *a2av1.TaskPushNotificationConfig) { c.Url = "https://ann:canary@example.com" }, []string{"url"}},
			{func(c *a2av1.TaskPushNotificationConfig) { c.Url = "https://example.com:99999" }, []string{"url"}},
			{func(c *a2av1.TaskPushNotificationConfig) { c.Url = "https://a b/%zz" }, []string{"url"}},
			{func(c *a2av1.TaskPushNotificationConfig) { c.Url = "https://example.com/" + strings.Repeat("x", 2048) }, []string{"url"}},
			{func(c *a2av1.TaskPushNotificationConfig) { c.Id = "a b" }, []string{"id"}},
			{func(c *a2av1.TaskPushNotificationConfig) { c.Token = "canary\r\nX-Evil: 1" }, []string{"token"}},
			{func(c *a2av1.TaskPushNotificationConfig) { c.Token = strings.Repeat("canary", 1000) }, []string{"token"}},
			{func(c *a2av1.TaskPushNotificationConfig) { c.Token = a2a.Masked }, []string{"token"}},
			{func(c *a2av1.TaskPushNotificationConfig) { c.Authentication.Scheme = "" }, []string{"authentication.scheme"}},
			{func(c *a2av1.TaskPushNotificationConfig) { c.Authentication.Scheme = "Bearer x" }, []string{"authentication.scheme"}},
			{func(c *a2av1.TaskPushNotificationConfig) { c.Authentication.Credentials = "canäry" }, []string{"authentication.credentials"}},
			{func(c *a2av1.TaskPushNotificationConfig) { c.Url, c.Token = "x", " " }, []string{"token", "url"}},
		} {
			conf := hook(task, "", "http://127.0.0.1:1")
			bad.change(conf)
			_, err := p.CreatePush(t.Context(), conf)
			wantReason(t, err, agent.ReasonInvalidRequest, bad.fields...)
			conf.TaskId = ""
			req := rig.Text("asks", "bad-"+c.Binding(), "x")
			req.Configuration = &a2av1.SendMessageConfiguration{TaskPushNotificationConfig: conf}
			_, err = c.Send(t.Context(), req)
			var inline []string
			for _, f := range bad.fields {
				inline = append(inline, "configuration.taskPushNotificationConfig."+f)
			}
			wantReason(t, err, agent.ReasonInvalidRequest, inline...)
		}
		_, err := p.ListPushes(t.Context(), &a2av1.ListTaskPushNotificationConfigsRequest{TaskId: task, PageSize: 101})
		wantReason(t, err, agent.ReasonInvalidRequest, "pageSize")
		_, err = p.ListPushes(t.Context(), &a2av1.ListTaskPushNotificationConfigsRequest{TaskId: task, PageToken: "bm9uZQ"})
		wantReason(t, err, agent.ReasonInvalidRequest, "pageToken")
		list, err := p.ListPushes(t.Context(), &a2av1.ListTaskPushNotificationConfigsRequest{TaskId: task})
		if err != nil || len(list.GetConfigs()) != 0 {
			t.Errorf("stored are %v, %v", list, err)
		}
		tasks, err := c.List(t.Context(), &a2av1.ListTasksRequest{})
		if err != nil || tasks.GetTotalSize() != 1 {
			t.Errorf("%d tasks, %v", tasks.GetTotalSize(), err)
		}
	})
}

// TestA_18_SwitchedOff: the card says so. What the calls say is in the table of errors.
func TestA_18_SwitchedOff(t *testing.T) {
	t.Parallel()
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, whichAgent(t)), Settings: &teamv1.ServerSettings{Push: &teamv1.PushSettings{Enabled: proto.Bool(false)}}})
	card, _, err := rig.PublicCard(t.Context(), target, "asks")
	if err != nil || card.GetCapabilities().GetPushNotifications() {
		t.Errorf("the card says %v, %v", card.GetCapabilities(), err)
	}
}

// server with a speaker, on a store.
func speaking(t testing.TB, s *speaker, at rig.Place) (clients []rig.Client, stop func()) {
	t.Helper()
	kept, done := at.Open(t)
	target, end := rig.Start(t, server.Config{Agents: rig.Manager(t, s, whichAgent(t)), Store: kept, Push: hasty})
	return rig.Clients(t, target), func() { end(); done() }
}

// TestA_18_ToldWhatStreamsTell: with a configuration in the send a receiver gets what a
// stream from the beginning gets, byte for byte in meaning.
func TestA_18_ToldWhatStreamsTell(t *testing.T) {
	t.Parallel()
	t.Run("many small pieces", func(t *testing.T) { toldWhatStreamsTell(t, 20, 1) })
	t.Run("S-64 few large ones", func(t *testing.T) { toldWhatStreamsTell(t, 3, 450_000) })
}

func toldWhatStreamsTell(t *testing.T, pieces, size int) {
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		s := newSpeaker("speaks")
		s.text = func(i int) string { return fmt.Sprint(i, strings.Repeat(".", size)) }
		clients, stop := speaking(t, s, at)
		defer stop()
		hooked := rig.NewReceiver(t)
		req := rig.Text("speaks", "m1", "x")
		req.Configuration = &a2av1.SendMessageConfiguration{TaskPushNotificationConfig: hook("", "", hooked.URL)}
		var want []*a2av1.StreamResponse
		done := make(chan error, 1)
		go func() {
			for u, err := range clients[1].Stream(t.Context(), req) {
				if err != nil {
					done <- err
					return
				}
				want = append(want, u)
			}
			done <- nil
		}()
		s.allowed <- pieces
		close(s.allowed)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		got := hooked.Until(t, "the end", func(l []rig.Notification) bool { return slices.ContainsFunc(l, rig.Ended) })
		list := []*a2av1.StreamResponse{}
		for _, n := range rig.Once(got) {
			list = append(list, n.Response)
		}
		if diff := cmp.Diff(want, list, protocmp.Transform()); diff != "" {
			t.Errorf("(-stream +push):\n%s", diff)
		}
		h := got[0].Header
		for name, want := range map[string]string{
			"Content-Type": "application/a2a+json", "Authorization": "Bearer canary-credentials",
			"X-A2A-Notification-Token": "canary-token", "A2A-Notification-Token": "canary-token",
		} {
			if h.Get(name) != want {
				t.Errorf("%s: %q, want %q", name, h.Get(name), want)
			}
		}
	})
}

// TestP6_A_18_FailsHangsIsKilled: a receiver that fails three times, is killed and
// comes back gets everything in order; the task and another receiver do not notice.
func TestP6_A_18_FailsHangsIsKilled(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		s := newSpeaker("speaks")
		clients, stop := speaking(t, s, at)
		defer stop()
		sick, well := rig.NewReceiver(t), rig.NewReceiver(t)
		hang := make(chan struct{})
		sick.Answer(func(n int) int {
			if n == 5 {
				<-hang
			}
			if n <= 3 || n == 5 {
				return http.StatusServiceUnavailable
			}
			return http.StatusOK
		})
		task := begin(t, clients[0], "speaks", "m1")
		for i, r := range []*rig.Receiver{sick, well} {
			if _, err := clients[i+1].(rig.PushClient).CreatePush(t.Context(), hook(task, "", r.URL)); err != nil {
				t.Fatal(err)
			}
		}
		s.allowed <- 10
		well.Until(t, "ten", func(l []rig.Notification) bool { return len(l) >= 10 })
		close(hang)
		sick.Until(t, "ten", func(l []rig.Notification) bool { return len(l) >= 10 })
		sick.Kill()
		s.allowed <- 10
		well.Until(t, "twenty", func(l []rig.Notification) bool { return len(l) >= 20 })
		sick.Start()
		close(s.allowed)
		want := well.Until(t, "the end", func(l []rig.Notification) bool { return slices.ContainsFunc(l, rig.Ended) })
		got := sick.Until(t, "the end", func(l []rig.Notification) bool { return slices.ContainsFunc(l, rig.Ended) })
		same(t, rig.Once(want), rig.Once(got))
		ordered(t, got)
	})
}

// same compares what two receivers were told, from where both were.
func same(t *testing.T, want, got []rig.Notification) {
	t.Helper()
	ids := func(list []rig.Notification) (ids []string) {
		for _, n := range list {
			ids = append(ids, n.ID)
		}
		return ids
	}
	a, b := ids(want), ids(got)
	if i, j := slices.Index(a, b[0]), slices.Index(b, a[0]); i > 0 { // one was registered a moment later
		a = a[i:]
	} else if j > 0 {
		b = b[j:]
	}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// ordered: what comes for the first time comes in the order of its events.
func ordered(t *testing.T, list []rig.Notification) {
	t.Helper()
	last := map[string]int64{}
	for _, n := range rig.Once(list) {
		if seq := n.Seq(); seq != 0 {
			if seq <= last[rig.TaskOf(n)] {
				t.Errorf("%s with %d comes behind %d", n.ID, seq, last[rig.TaskOf(n)])
			}
			last[rig.TaskOf(n)] = seq
		}
	}
}

// TestA_13_P6_AcrossRestarts: configurations and how far they were told outlive the
// server; it ends hard, as often as it wants.
func TestA_13_P6_AcrossRestarts(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		var l *life
		hooked := rig.NewReceiver(t)
		var task string
		for round := range 4 {
			s := newSpeaker("speaks")
			kept, done := at.Open(t)
			l = &life{store: faulty.New(kept), close: done}
			l.Target, l.stop = rig.Start(t, server.Config{Agents: rig.Manager(t, s), Store: l.store, Push: hasty})
			l.clients = rig.Clients(t, l.Target)
			if round == 0 {
				req := atOnce(rig.Text("speaks", "m1", "x"))
				req.Configuration.TaskPushNotificationConfig = hook("", "mine", hooked.URL)
				task = send(t, l.clients[0], req).GetId()
			}
			got, err := l.clients[round%3].(rig.PushClient).GetPush(t.Context(), &a2av1.GetTaskPushNotificationConfigRequest{TaskId: task, Id: "mine"})
			if err != nil || got.GetUrl() != hooked.URL {
				t.Fatalf("after %d restarts: %v, %v", round, got, err)
			}
			before := len(hooked.Taken())
			if round < 3 {
				s.allowed <- 5
			} else {
				close(s.allowed)
			}
			hooked.Until(t, "something", func(list []rig.Notification) bool { return len(list) > before })
			if round < 3 {
				l.kill(at)
			}
		}
		hooked.Until(t, "the end", func(list []rig.Notification) bool { return slices.ContainsFunc(list, rig.Ended) })
		list := hooked.Taken()
		ordered(t, list)
		t0 := list[0].Response.GetTask()
		if t0.GetId() != task || t0.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_SUBMITTED {
			t.Errorf("it begins with %v", list[0].Response)
		}
		folded(t, rig.Once(list), l.get(t, task))
		l.stop()
		l.close()
	})
}

// folded: what was told makes the task as it is.
func folded(t *testing.T, list []rig.Notification, task *a2av1.Task) {
	t.Helper()
	state, text := a2av1.TaskState(0), map[string]string{}
	for _, n := range list {
		switch p := n.Response.GetPayload().(type) {
		case *a2av1.StreamResponse_StatusUpdate:
			state = p.StatusUpdate.GetStatus().GetState()
		case *a2av1.StreamResponse_ArtifactUpdate:
			a := p.ArtifactUpdate.GetArtifact()
			if !p.ArtifactUpdate.GetAppend() {
				text[a.GetArtifactId()] = ""
			}
			text[a.GetArtifactId()] += agent.Text(&a2av1.Message{Parts: a.GetParts()})
		}
	}
	want := map[string]string{}
	for _, a := range task.GetArtifacts() {
		want[a.GetArtifactId()] = agent.Text(&a2av1.Message{Parts: a.GetParts()})
	}
	if diff := cmp.Diff(want, text); diff != "" || state != task.GetStatus().GetState() {
		t.Errorf("told is %v (-task +told):\n%s", state, diff)
	}
}

// TestA_18_P6_TwoReplicas: two servers share the receivers of one database; the one
// that is left goes on.
func TestA_18_P6_TwoReplicas(t *testing.T) {
	t.Parallel() // most of its time it waits for the lease of the first replica
	at := rig.PostgreSQL(t)
	s := newSpeaker("speaks")
	var servers []*life
	for range 2 {
		kept, done := at.Open(t)
		l := &life{store: faulty.New(kept), close: done}
		l.Target, l.stop = rig.Start(t, server.Config{Agents: rig.Manager(t, s), Store: l.store, Push: hasty})
		l.clients = rig.Clients(t, l.Target)
		servers = append(servers, l)
	}
	hooks := []*rig.Receiver{rig.NewReceiver(t), rig.NewReceiver(t), rig.NewReceiver(t), rig.NewReceiver(t)}
	task := begin(t, servers[0].clients[0], "speaks", "m1")
	for i, r := range hooks {
		if _, err := servers[i%2].clients[1].(rig.PushClient).CreatePush(t.Context(), hook(task, "", r.URL)); err != nil {
			t.Fatal(err)
		}
	}
	s.allowed <- 50
	for _, r := range hooks {
		r.Until(t, "fifty", func(l []rig.Notification) bool { return len(rig.Once(l)) >= 50 })
		if n := len(r.Taken()) - len(rig.Once(r.Taken())); n > 0 {
			t.Errorf("%d were told twice although nobody failed", n)
		}
	}
	servers[0].kill(at)
	close(s.allowed)
	for _, r := range hooks {
		r.Until(t, "the end", func(l []rig.Notification) bool { return slices.ContainsFunc(l, rig.Ended) })
		ordered(t, r.Taken())
		same(t, rig.Once(hooks[0].Taken()), rig.Once(r.Taken()))
	}
	servers[1].stop()
	servers[1].close()
}

// TestA_18_TasksOfAllKinds: a task that asks goes on to be told, one that has ended is
// told as it is, a delegation is told by its own id, and a message with a
// configuration is followed.
func TestA_18_TasksOfAllKinds(t *testing.T) {
	t.Parallel()
	m := manager.New(manager.Config{})
	t.Cleanup(m.Close)
	c := newCrew("b")
	for _, id := range []string{"a", "b", "c", "d"} {
		if err := m.Register(id, c.member(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Register("asks", whichAgent(t)); err != nil {
		t.Fatal(err)
	}
	four(t, m, "workflow")
	target := rig.Serve(t, server.Config{Agents: m, Push: hasty})
	rest := rig.NewREST(target)
	t.Run("a task that asks", func(t *testing.T) {
		asked, later := rig.NewReceiver(t), rig.NewReceiver(t)
		req := rig.Text("asks", "m1", "x")
		req.Configuration = &a2av1.SendMessageConfiguration{TaskPushNotificationConfig: hook("", "", asked.URL)}
		task := send(t, rest, req)
		answer := rig.Text("", "m2", "this")
		answer.Message.TaskId = task.GetId()
		answer.Configuration = &a2av1.SendMessageConfiguration{TaskPushNotificationConfig: hook("", "", later.URL)}
		send(t, rest, answer)
		end := func(l []rig.Notification) bool { return slices.ContainsFunc(l, rig.Ended) }
		got := asked.Until(t, "the end", end)
		if !slices.ContainsFunc(got, func(n rig.Notification) bool {
			return n.Response.GetStatusUpdate().GetStatus().GetState() == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
		}) {
			t.Error("it was not told that the task asks")
		}
		if first := later.Until(t, "the end", end)[0]; first.Response.GetTask() != nil || first.Seq() <= 1 {
			t.Errorf("one that comes later begins with %v", first.Response)
		}
		again := send(t, rest, answer) // the same message makes no second configuration
		list, err := rest.ListPushes(t.Context(), &a2av1.ListTaskPushNotificationConfigsRequest{TaskId: again.GetId()})
		if err != nil || len(list.GetConfigs()) != 2 {
			t.Errorf("there are %v, %v", list, err)
		}
		late := rig.NewReceiver(t)
		if _, err := rest.CreatePush(t.Context(), hook(task.GetId(), "", late.URL)); err != nil {
			t.Fatal(err)
		}
		if got := late.Until(t, "the task", func(l []rig.Notification) bool { return len(l) > 0 }); got[0].Response.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			t.Errorf("of a task that has ended: %v", got[0].Response)
		}
		answer.Message.MessageId, answer.Configuration.TaskPushNotificationConfig = "m3", hook("", "never", late.URL)
		_, err = rest.Send(t.Context(), answer)
		wantReason(t, err, a2aerror.ReasonUnsupportedOperation)
		_, err = rest.GetPush(t.Context(), &a2av1.GetTaskPushNotificationConfigRequest{TaskId: task.GetId(), Id: "never"})
		wantReason(t, err, a2aerror.ReasonTaskNotFound)
	})
	t.Run("a delegation", func(t *testing.T) {
		hooked := rig.NewReceiver(t)
		task := begin(t, rest, "team", "m4")
		<-c.entered["b"]
		child := task + "~2"
		if _, err := rest.CreatePush(t.Context(), hook(child, "", hooked.URL)); err != nil {
			t.Fatal(err)
		}
		c.open("b")
		got := hooked.Until(t, "the end", func(l []rig.Notification) bool { return slices.ContainsFunc(l, rig.Ended) })
		for _, n := range got {
			if rig.TaskOf(n) != child {
				t.Errorf("told is %v", n.Response)
			}
		}
	})
}

// TestA_18_A_15_ARefusedMessageChangesNoConfiguration: over each binding, and where
// the message is one of another task.
func TestA_18_A_15_ARefusedMessageChangesNoConfiguration(t *testing.T) {
	t.Parallel()
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, whichAgent(t))})
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		p := c.(rig.PushClient)
		const first = "http://127.0.0.1:1/first"
		used := "used-" + c.Binding()
		send(t, c, rig.Text("asks", used, "x"))
		task := send(t, c, rig.Text("asks", "m-"+c.Binding(), "x")).GetId()
		if _, err := p.CreatePush(t.Context(), hook(task, "mine", first)); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"mine", "other"} {
			req := rig.Text("", used, "this")
			req.Message.TaskId = task
			req.Configuration = &a2av1.SendMessageConfiguration{TaskPushNotificationConfig: hook("", id, "http://127.0.0.1:1/second")}
			_, err := c.Send(t.Context(), req)
			wantReason(t, err, agent.ReasonMessageIDReused)
		}
		list, err := p.ListPushes(t.Context(), &a2av1.ListTaskPushNotificationConfigsRequest{TaskId: task})
		if err != nil || len(list.GetConfigs()) != 1 || list.GetConfigs()[0].GetUrl() != first {
			t.Errorf("there are %v, %v", list.GetConfigs(), err)
		}
	})
}

// TestT_16_RedirectsAreNotFollowed: neither the body nor a secret goes anywhere else.
func TestT_16_RedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	policy := hasty
	policy.Tries = 2
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, whichAgent(t)), Push: policy})
	canary := rig.NewReceiver(t)
	calls := make(chan struct{}, 100)
	hop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, canary.URL, http.StatusTemporaryRedirect)
		calls <- struct{}{}
	}))
	t.Cleanup(hop.Close)
	req := rig.Text("asks", "m1", "x")
	req.Configuration = &a2av1.SendMessageConfiguration{TaskPushNotificationConfig: hook("", "", hop.URL)}
	send(t, rig.NewREST(target), req)
	for range 3 {
		<-calls
	}
	if n := canary.Calls(); n > 0 {
		t.Errorf("%d calls were redirected", n)
	}
}

// TestA_18_TheOwnerSeesWhatWasGivenUp: in the task's metadata, with the extension.
func TestA_18_TheOwnerSeesWhatWasGivenUp(t *testing.T) {
	t.Parallel()
	policy := hasty
	policy.Tries = 3
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, whichAgent(t)), Push: policy})
	sick := rig.NewReceiver(t)
	sick.Answer(func(int) int { return http.StatusGone })
	req := rig.Text("asks", "m1", "x")
	req.Configuration = &a2av1.SendMessageConfiguration{TaskPushNotificationConfig: hook("", "mine", sick.URL)}
	task := send(t, rig.NewREST(target), req)
	target.Headers = map[string]string{"a2a-extensions": a2a.TeamRunURI}
	deadline, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		for {
			got, err := c.Get(deadline, &a2av1.GetTaskRequest{Id: task.GetId()})
			if err != nil {
				t.Fatal(err)
			}
			list := a2a.RunOf(got.GetMetadata()).GetPush()
			if len(list) != 1 || list[0].GetId() != "mine" {
				t.Fatalf("shown is %v", list)
			}
			if len(list[0].GetGivenUp()) == 0 {
				continue
			}
			dead := list[0].GetGivenUp()[len(list[0].GetGivenUp())-1]
			if !list[0].GetFailing() || dead.GetTries() != 3 || dead.GetNotification() != task.GetId()+":1:1" || dead.GetError() != "refused by receiver" || !dead.GetTime().IsValid() {
				t.Errorf("shown is %v", list)
			}
			return
		}
	})
}
