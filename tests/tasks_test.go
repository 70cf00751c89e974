package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// rawAnswers are the JSON of an operation's answer over REST, by a query or a body,
// and over JSON-RPC.
func rawAnswers(t *testing.T, target rig.Target, method string, params any, restMethod, restPath string) map[string]map[string]json.RawMessage {
	t.Helper()
	all := map[string]map[string]json.RawMessage{}
	read := func(binding string, a *rig.Answer, err error) json.RawMessage {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		b, err := a.Body()
		if err != nil || a.Status != http.StatusOK {
			t.Fatalf("%s: %d %s %v", binding, a.Status, b, err)
		}
		return b
	}
	object := func(b []byte) (m map[string]json.RawMessage) {
		t.Helper()
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		return m
	}
	body, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	var rest []byte
	if restMethod == http.MethodPost {
		rest = body
	}
	a, err := target.Do(t.Context(), restMethod, restPath, rest, map[string]string{"Content-Type": wire.TypeA2A})
	all["rest"] = object(read("rest", a, err))
	body = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, body)
	a, err = target.Do(t.Context(), http.MethodPost, "/rpc", body, map[string]string{"Content-Type": wire.TypeJSON})
	all["jsonrpc"] = object(object(read("jsonrpc", a, err))["result"])
	return all
}

// TestA_05_LargeTasks: a page of tasks that are large ends by bytes, and the next one
// goes on; what is cut from them makes room for more.
func TestA_05_LargeTasks(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		s, _ := at.Open(t)
		deaf := &agent.Func{ID: "deaf", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
			return agent.NewMessage("What?"), nil
		}}
		target := rig.Serve(t, server.Config{Agents: rig.Manager(t, deaf), Store: s})
		const many, size = 12, 700_000
		var newest []string
		for i := range many {
			resp, err := rig.NewREST(target).Send(t.Context(), rig.Text("deaf", fmt.Sprint("m-", i), strings.Repeat("x", size)))
			if err != nil {
				t.Fatal(err)
			}
			newest = append([]string{resp.GetTask().GetId()}, newest...)
		}
		rig.Each(t, target, func(t *testing.T, c rig.Client) {
			var got []string
			pages := 0
			for token := ""; pages == 0 || token != ""; pages++ {
				page, err := c.List(t.Context(), &a2av1.ListTasksRequest{PageSize: proto.Int32(100), PageToken: token})
				if err != nil || page.GetTotalSize() != many || page.GetPageSize() != 100 || len(page.GetTasks()) > 3<<20/size {
					t.Fatalf("page %d has %d tasks of %d: %v", pages, len(page.GetTasks()), page.GetTotalSize(), err)
				}
				for _, task := range page.GetTasks() {
					if got = append(got, task.GetId()); len(task.GetHistory()) == 0 || len(agent.Text(task.GetHistory()[0])) != size {
						t.Errorf("%s is not whole", task.GetId())
					}
				}
				token = page.GetNextPageToken()
			}
			if !slices.Equal(got, newest) || pages != many/4 {
				t.Errorf("%d pages of %v, want %v", pages, got, newest)
			}
			page, err := c.List(t.Context(), &a2av1.ListTasksRequest{HistoryLength: proto.Int32(0)})
			if err != nil || len(page.GetTasks()) != many || page.GetNextPageToken() != "" {
				t.Errorf("without history: %d tasks, %v", len(page.GetTasks()), err)
			}
		})
	})
}

// TestA_05_ManyTasks: 250 tasks made at once, read in pages of 7: each is there
// once, newest status first and then by id, over every binding; the four fields
// are always there, and artifacts only where they are asked for.
func TestA_05_ManyTasks(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		s, _ := at.Open(t)
		target := rig.Serve(t, server.Config{Agents: rig.Manager(t, says("echo")), Store: s})
		clients := rig.Clients(t, target)
		ids := make([]string, 250)
		var writing sync.WaitGroup
		for i := range ids {
			writing.Go(func() {
				resp, err := clients[i%3].Send(t.Context(), rig.Text("echo", fmt.Sprint("m-", i), "x"))
				if err != nil {
					t.Error(err)
				}
				ids[i] = resp.GetTask().GetId()
			})
		}
		writing.Wait()
		slices.Sort(ids)
		var first []string
		for _, c := range clients {
			t.Run("A-05 "+c.Binding(), func(t *testing.T) {
				all := paged(t, c)
				if first == nil {
					first = all
				}
				if diff := cmp.Diff(first, all); diff != "" {
					t.Errorf("another order than over %s:\n%s", clients[0].Binding(), diff)
				}
				if diff := cmp.Diff(ids, slices.Sorted(slices.Values(all))); diff != "" {
					t.Error(diff)
				}
			})
		}
		for name, c := range map[string]struct {
			params map[string]any
			query  string
			tasks  int
		}{
			"A-05 a page": {map[string]any{"pageSize": 7}, "pageSize=7", 7}, "A-05 all there is room for": {map[string]any{}, "", 50},
			"A-05 nothing": {map[string]any{"contextId": "none"}, "contextId=none", 0},
		} {
			t.Run(name, func(t *testing.T) {
				for binding, page := range rawAnswers(t, target, "ListTasks", c.params, http.MethodGet, "/tasks?"+c.query) {
					wantPage(t, binding, page, c.tasks)
				}
			})
		}
		t.Run("A-05 artifacts on request", func(t *testing.T) {
			for _, page := range rawAnswers(t, target, "ListTasks", map[string]any{"includeArtifacts": true}, http.MethodGet, "/tasks?includeArtifacts=true") {
				for _, task := range rawTasks(t, page) {
					if _, there := task["artifacts"]; !there {
						t.Fatalf("none in %s", task)
					}
				}
			}
		})
	})
}

// paged reads all pages of 7 and checks the order.
func paged(t *testing.T, c rig.Client) (ids []string) {
	t.Helper()
	req := &a2av1.ListTasksRequest{PageSize: proto.Int32(7)}
	var last *a2av1.Task
	for {
		page, err := c.List(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if page.GetTotalSize() != 250 || page.GetPageSize() != 7 || len(page.GetTasks()) > 7 {
			t.Fatalf("a page of %d of %d has %d", page.GetPageSize(), page.GetTotalSize(), len(page.GetTasks()))
		}
		for _, task := range page.GetTasks() {
			if last != nil {
				a, b := last.GetStatus().GetTimestamp().AsTime(), task.GetStatus().GetTimestamp().AsTime()
				if a.Before(b) || a.Equal(b) && last.GetId() <= task.GetId() {
					t.Errorf("%v comes before %v", last, task)
				}
			}
			last = task
			ids = append(ids, task.GetId())
		}
		if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
			return ids
		}
	}
}

// wantPage wants a page's four fields, and no artifacts in its tasks.
func wantPage(t *testing.T, binding string, page map[string]json.RawMessage, tasks int) {
	t.Helper()
	for _, field := range []string{"tasks", "nextPageToken", "pageSize", "totalSize"} {
		if v, there := page[field]; !there || string(v) == "null" {
			t.Errorf("%s: no %s", binding, field)
		}
	}
	list := rawTasks(t, page)
	if len(list) != tasks {
		t.Errorf("%s: %d tasks, want %d", binding, len(list), tasks)
	}
	for _, task := range list {
		if v, there := task["artifacts"]; there {
			t.Fatalf("%s: artifacts nobody asked for: %s", binding, v)
		}
	}
}

func rawTasks(t *testing.T, page map[string]json.RawMessage) (list []map[string]json.RawMessage) {
	t.Helper()
	if err := json.Unmarshal(page["tasks"], &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestA_06_HistoryOverTheWire: as much history as was asked for is in every task
// that is answered or told, the newest; of none not even the field.
func TestA_06_HistoryOverTheWire(t *testing.T) {
	t.Parallel()
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, script(t, "asks", append(asking("1?"), asking("2?")...)...))})
	all := []string{"x", "1?", "a", "2?", "b"}
	asked := send(t, rig.NewREST(target), rig.Text("asks", "m-1", "x"))
	for i, text := range []string{"a", "b"} {
		req := rig.Text("", fmt.Sprint("m-", i+2), text)
		req.Message.TaskId = asked.GetId()
		send(t, rig.NewREST(target), req)
	}
	for name, c := range map[string]struct {
		n    *int32
		want []string
	}{"A-06 unset": {nil, all}, "A-06 none": {proto.Int32(0), nil}, "A-06 one": {proto.Int32(1), all[4:]}, "A-06 three": {proto.Int32(3), all[2:]}, "A-06 more than there is": {proto.Int32(1000), all}} {
		again := rig.Text("asks", "m-1", "x")
		again.Configuration = &a2av1.SendMessageConfiguration{HistoryLength: c.n}
		want := func(t *testing.T, where string, history []*a2av1.Message, err error) {
			t.Helper()
			if diff := cmp.Diff(c.want, saidBy(history)); err != nil || diff != "" {
				t.Errorf("%s: %v (-want +got):\n%s", where, err, diff)
			}
		}
		t.Run(name, func(t *testing.T) {
			rig.Each(t, target, func(t *testing.T, client rig.Client) {
				ctx := t.Context()
				task, err := client.Get(ctx, &a2av1.GetTaskRequest{Id: asked.GetId(), HistoryLength: c.n})
				want(t, "get", task.GetHistory(), err)
				list, err := client.List(ctx, &a2av1.ListTasksRequest{HistoryLength: c.n})
				if err != nil || len(list.GetTasks()) != 1 {
					t.Fatal(list, err)
				}
				want(t, "list", list.GetTasks()[0].GetHistory(), nil)
				resp, err := client.Send(ctx, again)
				want(t, "send", resp.GetTask().GetHistory(), err)
				now := proto.CloneOf(again)
				now.Configuration.ReturnImmediately = true
				resp, err = client.Send(ctx, now)
				want(t, "send at once", resp.GetTask().GetHistory(), err)
				// A message to a task is answered with the task as it is.
				more := rig.Text("", "m-3", "b")
				more.Message.TaskId, more.Configuration = asked.GetId(), again.GetConfiguration()
				for u, err := range client.Stream(ctx, more) {
					want(t, "stream", u.GetTask().GetHistory(), err)
					break
				}
			})
			if c.n == nil || *c.n != 0 {
				return
			}
			id := asked.GetId()
			for binding, task := range rawAnswers(t, target, "GetTask", map[string]any{"id": id, "historyLength": 0}, http.MethodGet, "/tasks/"+id+"?historyLength=0") {
				if v, there := task["history"]; there {
					t.Errorf("%s: history is %s", binding, v)
				}
			}
		})
	}
	t.Run("A-06 a task that is subscribed to is told with its history", func(t *testing.T) {
		waits := send(t, rig.NewREST(target), rig.Text("asks", "m-9", "x"))
		rig.Each(t, target, func(t *testing.T, client rig.Client) {
			for u, err := range client.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: waits.GetId()}, 0) {
				if diff := cmp.Diff([]string{"x"}, saidBy(u.GetTask().GetHistory())); err != nil || diff != "" {
					t.Error(err, diff)
				}
				break
			}
		})
	})
}

// saidBy are the texts of messages.
func saidBy(history []*a2av1.Message) (all []string) {
	for _, m := range history {
		all = append(all, agent.Text(m))
	}
	return all
}

// TestA_04_BadTimes: a time that is none is a bad field, in each encoding.
func TestA_04_BadTimes(t *testing.T) {
	t.Parallel()
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, says("echo"))})
	g := rig.Clients(t, target)[0]
	for _, at := range []*timestamppb.Timestamp{{Nanos: -1}, {Seconds: 1 << 60}, {Seconds: -1 << 60}} {
		_, err := g.List(t.Context(), &a2av1.ListTasksRequest{StatusTimestampAfter: at})
		wantReason(t, err, agent.ReasonInvalidRequest, "statusTimestampAfter")
	}
	for _, text := range []string{"yesterday", "2026-02-30T00:00:00Z", "2026-01-01", "99999-01-01T00:00:00Z"} {
		rest, err := target.Do(t.Context(), http.MethodGet, "/tasks?statusTimestampAfter="+url.QueryEscape(text), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		restErr := rest.Read(&a2av1.ListTasksResponse{})
		wantReason(t, restErr, agent.ReasonInvalidRequest, "statusTimestampAfter")
		body := `{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"statusTimestampAfter":` + strconv.Quote(text) + `}}`
		rpc, err := target.Do(t.Context(), http.MethodPost, "/rpc", []byte(body), map[string]string{"Content-Type": wire.TypeJSON})
		if err != nil {
			t.Fatal(err)
		}
		rpcErr := rig.RPCAnswer(rpc, &a2av1.ListTasksResponse{})
		if !rig.Same(rig.Fault(restErr), rig.Fault(rpcErr)) {
			t.Errorf("%s: REST %v, JSON-RPC %v", text, restErr, rpcErr)
		}
	}
}

// TestA_02_CanceledAgain: what is canceled is answered with the same task.
func TestA_02_CanceledAgain(t *testing.T) {
	t.Parallel()
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, patient())})
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		id := send(t, c, atOnce(rig.Text("works", "m-"+c.Binding(), "x"))).GetId()
		var first *a2av1.Task
		for range 3 {
			task, err := c.Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: id})
			if err != nil || task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED {
				t.Fatal(task, err)
			}
			if first == nil {
				first = task
			}
			if !proto.Equal(first, task) {
				t.Errorf("%v is %v the next time", first, task)
			}
		}
	})
}

// TestA_09_WhoWaitsForWhat: a blocking send waits for an end or a question, one
// that returns immediately for nothing, and who goes away, or has no more time,
// ends nothing.
func TestA_09_WhoWaitsForWhat(t *testing.T) {
	t.Parallel()
	c := newCrew("a")
	l := live(t, rig.Memory(t), func() *manager.Manager {
		m := c.members(t)
		if err := m.Register("asks", script(t, "asks", asking("who?")...)); err != nil {
			t.Fatal(err)
		}
		if err := m.Register("asks-to-log-in", loginAgent{}); err != nil {
			t.Fatal(err)
		}
		return m
	}())
	for _, client := range l.clients {
		t.Run("A-09 "+client.Binding(), func(t *testing.T) {
			id := func(what string) string { return what + "-" + client.Binding() }
			wantState := func(task *a2av1.Task, want a2av1.TaskState) {
				t.Helper()
				if task.GetStatus().GetState() != want {
					t.Errorf("the task is %v, want %v", task, want)
				}
			}
			wantState(send(t, client, rig.Text("b", id("ends"), "x")), a2av1.TaskState_TASK_STATE_COMPLETED)
			wantState(send(t, client, rig.Text("asks", id("asks"), "x")), a2av1.TaskState_TASK_STATE_INPUT_REQUIRED)
			wantState(send(t, client, rig.Text("asks-to-log-in", id("login"), "x")), a2av1.TaskState_TASK_STATE_AUTH_REQUIRED)
			now := send(t, client, atOnce(rig.Text("a", id("now"), "x")))
			if s := now.GetStatus().GetState(); s != a2av1.TaskState_TASK_STATE_SUBMITTED && s != a2av1.TaskState_TASK_STATE_WORKING {
				t.Errorf("at once it is %v", now)
			}
			<-c.entered["a"]
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan error, 1)
			go func() {
				_, err := client.Send(ctx, rig.Text("a", id("leaves"), "x"))
				left <- err
			}()
			<-c.entered["a"]
			leave()
			if err := <-left; err == nil {
				t.Error("it has not left")
			}
			hurried := l.Target
			hurried.Patience = 50 * time.Millisecond
			for entered := false; !entered; hurried.Patience *= 2 { // a busy machine may not have taken the message yet
				for _, h := range rig.Clients(t, hurried) {
					if h.Binding() != client.Binding() {
						continue
					}
					_, err := h.Send(t.Context(), rig.Text("a", id("hurries"), "x"))
					if f := rig.Fault(err); f == nil || f.Code != "DeadlineExceeded" {
						t.Errorf("in a hurry: %v", err)
					}
				}
				select {
				case <-c.entered["a"]:
					entered = true
				default:
				}
			}
		})
	}
	list, err := l.clients[0].List(t.Context(), &a2av1.ListTasksRequest{Tenant: "a", Status: a2av1.TaskState_TASK_STATE_WORKING})
	if err != nil || list.GetTotalSize() != 9 {
		t.Fatalf("A-09 at work are %d, want 9: %v", list.GetTotalSize(), err)
	}
	c.open("a")
	for _, task := range list.GetTasks() {
		wantText(t, l.until(t, task.GetId(), ended), "a(x)")
	}
}

// loginAgent wants its caller to log in.
type loginAgent struct{}

func (loginAgent) Info(context.Context) (*teamv1.AgentInfo, error) {
	return &teamv1.AgentInfo{Id: "asks-to-log-in"}, nil
}

func (loginAgent) HealthCheck(context.Context) (*teamv1.Health, error) { return agent.Healthy(), nil }

func (loginAgent) Process(_ context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		if len(req.GetRecorded()) == 0 {
			yield(&teamv1.Event{Agent: "asks-to-log-in", Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{
				Question: "login", Kind: teamv1.Asked_KIND_AUTH, Message: agent.NewMessage("log in"),
			}}}, nil)
			return
		}
		yield(agent.ReplyEvent(req, &teamv1.Reply{Result: &teamv1.Reply_Message{Message: agent.NewMessage("in")}}), nil)
	}
}

// TestA_16_OneEndOverTheWire: a task that is canceled, written to and finished at
// once, over one binding each, ends once, whoever watches; and stays as it ended.
func TestA_16_OneEndOverTheWire(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		gates := make([]chan struct{}, 30)
		var agents []agent.Agent
		for i := range gates {
			gates[i] = make(chan struct{})
			agents = append(agents, act(fmt.Sprint("a", i), func(ctx context.Context, text string) (string, error) {
				select {
				case <-gates[i]:
					return text, nil
				case <-ctx.Done():
					return "", context.Cause(ctx)
				}
			}))
		}
		s, _ := at.Open(t)
		clients := rig.Clients(t, rig.Serve(t, server.Config{Agents: rig.Manager(t, agents...), Store: s}))
		states := map[a2av1.TaskState]int{}
		for i, gate := range gates {
			a, b, c := clients[i%3], clients[(i+1)%3], clients[(i+2)%3]
			id := send(t, a, atOnce(rig.Text(fmt.Sprint("a", i), fmt.Sprint("m-", i), "x"))).GetId()
			var racing sync.WaitGroup
			last := a2av1.TaskState_TASK_STATE_UNSPECIFIED
			ends, begun := 0, sync.OnceFunc(func() {
				racing.Go(func() { _, _ = a.Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: id}) })
				racing.Go(func() {
					req := atOnce(rig.Text("", fmt.Sprint("more-", i), "more"))
					req.Message.TaskId = id
					_, _ = b.Send(t.Context(), req)
				})
				racing.Go(func() {
					for range i % 5 { // some of the time it is the last
						_, _ = c.Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
					}
					close(gate)
				})
			})
			for u, err := range c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: id}, 0) {
				if err != nil {
					t.Fatal(err)
				}
				begun()
				if isEnd(u) {
					ends++
					last = u.GetStatusUpdate().GetStatus().GetState()
				}
			}
			racing.Wait()
			task, err := a.Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
			if err != nil || ends != 1 || task.GetStatus().GetState() != last {
				t.Errorf("%d ends, the last %v; the task is %v, %v", ends, last, task, err)
			}
			states[last]++
			_, err = b.Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: id})
			if canceled := last == a2av1.TaskState_TASK_STATE_CANCELED; canceled != (err == nil) {
				t.Errorf("%v, canceled again: %v", last, err)
			}
			again, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
			if err != nil || !proto.Equal(task, again) {
				t.Errorf("%v has become %v, %v", task, again, err)
			}
		}
		t.Log(states)
	})
}

// TestA_17_RefusedWhileItWorks: a server that is told so takes no message to a task
// that asks for nothing; answers, and what comes again, it takes.
func TestA_17_RefusedWhileItWorks(t *testing.T) {
	t.Parallel()
	asks, works := script(t, "asks", asking("who?")...), patient()
	for _, refuses := range []bool{true, false} {
		target := rig.Serve(t, server.Config{Agents: rig.Manager(t, asks, works), Settings: &teamv1.ServerSettings{Protocol: &teamv1.ProtocolSettings{RefuseWhileWorking: refuses}}})
		rig.Each(t, target, func(t *testing.T, c rig.Client) {
			name := c.Binding()
			id := begin(t, c, "works", "begins-"+name)
			more := rig.Text("", "more-"+name, "and this")
			more.Message.TaskId, more.Configuration = id, &a2av1.SendMessageConfiguration{ReturnImmediately: true}
			_, err := c.Send(t.Context(), more)
			if f := rig.Fault(err); refuses && (f == nil || f.Reason != "UNSUPPORTED_OPERATION") || !refuses && f != nil {
				t.Errorf("to one that works: %v", err)
			}
			again := rig.Text("works", "begins-"+name, "x")
			again.Configuration = more.GetConfiguration()
			if resp, err := c.Send(t.Context(), again); err != nil || resp.GetTask().GetId() != id {
				t.Errorf("what began it, again: %v, %v", resp, err)
			}
			resp, err := c.Send(t.Context(), rig.Text("asks", "question-"+name, "x"))
			if err != nil {
				t.Fatal(err)
			}
			answer := rig.Text("", "answer-"+name, "me")
			answer.Message.TaskId = resp.GetTask().GetId()
			if resp, err = c.Send(t.Context(), answer); err != nil || resp.GetTask().GetStatus().GetState() != completedTask {
				t.Errorf("an answer: %v, %v", resp, err)
			}
			if _, err := c.Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: id}); err != nil {
				t.Error(err)
			}
		})
	}
}
