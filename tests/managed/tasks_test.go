package managed

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
	teammcp "github.com/agentteams/team-server/pkg/mcp"
	"github.com/agentteams/team-server/tests/rig"
)

// watchedFile has an operator with the permission WATCH, two principals of its account, and an operator of another one.
const watchedFile = `version: v1
models:
  one: {provider: openai, name: one, base_url: "${LLM}", api_key: k, price: {input: 1, output: 1}}
  two: {provider: openai, name: two, base_url: "${LLM}", api_key: k, price: {input: 1, output: 1}}
  three: {provider: openai, name: three, base_url: "${LLM}", api_key: k}
tools:
  sea: {mcp: {url: "${SEA}", effects: {"*": UNSAFE, pay: KEYED}}}
agents:
  first: {model: one}
  second: {model: two}
  third: {model: three}
  diver: {model: one, tools: [sea]}
  parrot: {scripted: {steps: [{text: "parrot: {{input}}"}]}}
teams:
  line: {workflow: {steps: [{id: a, agent: first}, {id: b, agent: second}, {id: c, agent: third, task: "{{steps.a.text}} {{steps.b.text}}"}]}}
  nested: {workflow: {steps: [{id: p, agent: parrot}, {id: l, agent: line}]}}
  dives: {workflow: {steps: [{id: a, agent: first}, {id: d, agent: diver}]}}
  asks: {workflow: {steps: [{id: q, ask: "Which?"}, {id: b, agent: second}]}}
server:
  default_agent: parrot
  auth:
    api_keys:
      - {name: ann, account: acme, sha256: "${ANN}", permissions: [READ, CALL, ANSWER, HALT]}
      - {name: bob, account: acme, sha256: "${BOB}"}
      - {name: boss, account: acme, sha256: $BOSS, permissions: [READ, WATCH]}
      - {name: eve, account: other, sha256: "${EVE}", permissions: [READ, WATCH]}
`

// watched returns watchedFile with the address of the tools.
func watched(sea string) string {
	return strings.NewReplacer("${SEA}", sea, "$BOSS", rig.Key("acme", "boss").GetSha256()).Replace(watchedFile)
}

// noSea is the address of tools that are not used.
const noSea = "http://127.0.0.1:9/"

// refusal is the reason of an error, "" without one.
func refusal(err error) string {
	if err == nil {
		return ""
	}
	return rig.Fault(err).Reason
}

// monitors are clients of the monitor service over each binding.
func monitors(t *testing.T, target rig.Target) map[string]teamv1.MonitorServiceClient {
	t.Helper()
	by := map[string]teamv1.MonitorServiceClient{}
	for _, s := range rig.Services(t, target) {
		by[s.Binding()] = teamv1.NewMonitorServiceClient(s)
	}
	return by
}

// TestWatch_TasksOfTheAccount: a caller finds its own tasks and, with WATCH, those of its account, which it can read but
// not change.
func TestWatch_TasksOfTheAccount(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		h := open(t, at, watched(noSea), fakellm.New(t))
		tasks := map[string]string{}
		for _, who := range []string{"ann", "bob"} {
			as := *h
			as.Target = h.As("acme", who)
			task, err := as.send(t, rig.Text("parrot", "m-"+who, "the pearl of "+who))
			if err != nil {
				t.Fatal(err)
			}
			tasks[who] = task.GetId()
		}
		for _, c := range []struct {
			account, who, principal string
			want                    []string
			reason                  string
		}{
			{"acme", "ann", "", []string{"ann"}, ""},
			{"acme", "ann", "-", []string{"ann"}, ""},
			{"acme", "ann", "ann", []string{"ann"}, ""},
			{"acme", "ann", "bob", nil, "PERMISSION_DENIED"},
			{"acme", "boss", "", []string{"bob", "ann"}, ""},
			{"acme", "boss", "ann", []string{"ann"}, ""},
			{"acme", "boss", "-", nil, ""},
			{"other", "eve", "", nil, ""},
			{"other", "eve", "ann", nil, ""},
		} {
			for binding, m := range monitors(t, h.As(c.account, c.who)) {
				resp, err := m.FindTasks(t.Context(), &teamv1.FindTasksRequest{Principal: c.principal, Text: "PEARL"})
				var got []string
				for _, f := range resp.GetTasks() {
					got = append(got, f.GetPrincipal())
				}
				if refusal(err) != c.reason || !slices.Equal(got, c.want) {
					t.Errorf("%s: %s finds those of %q: %v, %v; want %v %s", binding, c.who, c.principal, got, err, c.want, c.reason)
				}
			}
		}
		for who, sees := range map[string]bool{"acme/ann": true, "acme/boss": true, "acme/bob": false, "other/eve": false} {
			account, name, _ := strings.Cut(who, "/")
			for binding, m := range monitors(t, h.As(account, name)) {
				_, err := m.GetTrace(t.Context(), &teamv1.GetTraceRequest{TaskId: tasks["ann"]})
				if (err == nil) != sees || !sees && refusal(err) != a2aerror.ReasonTaskNotFound {
					t.Errorf("%s: the trace for %s: %v", binding, who, err)
				}
			}
			events, err := teamv1.NewMonitorServiceClient(rig.Services(t, h.As(account, name))[0]).WatchTask(t.Context(), &teamv1.WatchTaskRequest{TaskId: tasks["ann"]})
			if err == nil {
				_, err = events.Recv()
			}
			if (err == nil) != sees {
				t.Errorf("%s watches: %v", who, err)
			}
		}
		boss := rig.NewREST(h.As("acme", "boss"))
		if _, err := boss.Get(t.Context(), &a2av1.GetTaskRequest{Id: tasks["ann"]}); refusal(err) != a2aerror.ReasonTaskNotFound {
			t.Errorf("boss gets the task over A2A: %v", err)
		}
		for binding, m := range monitors(t, h.As("acme", "boss")) {
			if _, err := m.RetryTask(t.Context(), &teamv1.RetryTaskRequest{TaskId: tasks["ann"]}); refusal(err) != "PERMISSION_DENIED" {
				t.Errorf("%s: boss retries: %v", binding, err)
			}
		}
		for binding, m := range monitors(t, h.As("acme", "bob")) {
			if _, err := m.RetryTask(t.Context(), &teamv1.RetryTaskRequest{TaskId: tasks["ann"]}); refusal(err) != a2aerror.ReasonTaskNotFound {
				t.Errorf("%s: bob retries: %v", binding, err)
			}
		}
	})
}

// TestFind_Faults: requests that cannot be answered name their field over each binding.
func TestFind_Faults(t *testing.T) {
	t.Parallel()
	h := open(t, rig.Memory(t), watched(noSea), fakellm.New(t))
	for binding, m := range monitors(t, h.As("acme", "ann")) {
		for field, req := range map[string]*teamv1.FindTasksRequest{
			"text": {Text: "?!"}, "minCostMicros": {MinCostMicros: -1}, "pageSize": {PageSize: 101}, "state": {State: 77}, "pageToken": {PageToken: "x"}, "taskId": {TaskId: strings.Repeat("x", 300)},
		} {
			if _, err := m.FindTasks(t.Context(), req); refusal(err) != agent.ReasonInvalidRequest || !strings.Contains(err.Error(), field) {
				t.Errorf("%s: a wrong %s: %v", binding, field, err)
			}
		}
		if _, err := m.RetryTask(t.Context(), &teamv1.RetryTaskRequest{TaskId: "none"}); refusal(err) != a2aerror.ReasonTaskNotFound {
			t.Errorf("%s: an unknown task is retried: %v", binding, err)
		}
		if _, err := m.RetryTask(t.Context(), &teamv1.RetryTaskRequest{TaskId: "none~1"}); refusal(err) != agent.ReasonInvalidRequest {
			t.Errorf("%s: a step is retried: %v", binding, err)
		}
	}
}

// retries is a server with watchedFile, whose models count their calls.
type retries struct {
	*house
	monitor teamv1.MonitorServiceClient
}

func retriesOn(t *testing.T, at rig.Place, sea string) *retries {
	t.Helper()
	llm := fakellm.New(t)
	for _, model := range []string{"one", "two", "three"} {
		llm.Answer(model, func(r *fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: model + " of " + r.Last()} })
	}
	h := open(t, at, watched(sea), llm)
	h.Target = h.As("acme", "ann")
	return &retries{h, teamv1.NewMonitorServiceClient(rig.Services(t, h.Target)[0])}
}

// refuses lets the next call of a model fail for good.
func (h *retries) refuses(model string) {
	h.llm.Script(model, fakellm.Turn{Status: http.StatusUnauthorized})
}

// begin sends a message and returns the id of its task at once.
func (h *retries) begin(t *testing.T, team string) string {
	t.Helper()
	req := rig.Text(team, "m-"+team, "tides")
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	task, err := h.send(t, req)
	if err != nil {
		t.Fatal(err)
	}
	return task.GetId()
}

// retry retries a task with a request id, and returns the answer and the id of the new one.
func (h *retries) retry(t *testing.T, id, request string) *teamv1.RetryTaskResponse {
	t.Helper()
	resp, err := h.monitor.RetryTask(t.Context(), &teamv1.RetryTaskRequest{TaskId: id, RequestId: request})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// cutOff cancels a task during the call of a tool, which has begun when begun receives, and returns the id of its retry.
func (h *retries) cutOff(t *testing.T, id string, begun <-chan struct{}) string {
	t.Helper()
	select {
	case <-begun:
	case <-t.Context().Done():
		t.Fatal("the tool is not called")
	}
	if _, err := rig.NewREST(h.Target).Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: id}); err != nil {
		t.Fatal(err)
	}
	h.ended(t, id)
	return h.retry(t, id, "").GetTaskId()
}

// calls is how often each model was called.
func (h *retries) calls() (n [3]int) {
	for i, model := range []string{"one", "two", "three"} {
		n[i] = len(h.llm.Requests(model))
	}
	return n
}

// TestRetry_KeepsWhatHadSucceeded: the retry of a task makes only the calls that had failed and those behind them, in
// nested teams too, and counts only what it spends itself.
func TestRetry_KeepsWhatHadSucceeded(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		for team, kept := range map[string]int{"line": 1, "nested": 2} {
			h := retriesOn(t, at.Another(t), noSea)
			h.refuses("two")
			id := h.begin(t, team)
			if old := h.ended(t, id); old.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_FAILED {
				t.Fatalf("%s: %v", team, old)
			}
			resp := h.retry(t, id, "r-1")
			task := h.ended(t, resp.GetTaskId())
			want := "three of one of tides two of one of tides"
			if team == "nested" {
				want = strings.ReplaceAll(want, "tides", "parrot: tides")
			}
			if got := answer(task); got != want || h.calls() != [3]int{1, 2, 1} || len(resp.GetKept()) != kept {
				t.Errorf("%s: the answer is %q, want %q, after %v calls; kept %v, repeated %v", team, got, want, h.calls(), resp.GetKept(), resp.GetRepeated())
			}
			if again := h.retry(t, id, "r-1"); again.GetTaskId() != resp.GetTaskId() {
				t.Errorf("%s: the same request begins %s, and then %s", team, resp.GetTaskId(), again.GetTaskId())
			}
			found := map[string]*teamv1.FoundTask{}
			list, err := h.monitor.FindTasks(t.Context(), &teamv1.FindTasksRequest{MinCostMicros: 1})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range list.GetTasks() {
				found[f.GetTaskId()] = f
			}
			trace, err := h.monitor.GetTrace(t.Context(), &teamv1.GetTraceRequest{TaskId: resp.GetTaskId()})
			if err != nil || trace.GetTrace().GetRetries() != id {
				t.Fatalf("%s: %v, %v", team, trace, err)
			}
			if spent := trace.GetTrace().GetStep().GetSpent(); spent.GetModelCalls() != 2 || found[resp.GetTaskId()].GetSpent().GetInputTokens() != spent.GetInputTokens() || found[id] == nil {
				t.Errorf("%s: the new task has spent %v, and is listed with %v", team, spent, found[resp.GetTaskId()])
			}
			for _, done := range []string{resp.GetTaskId()} {
				if _, err := h.monitor.RetryTask(t.Context(), &teamv1.RetryTaskRequest{TaskId: done}); refusal(err) != a2aerror.ReasonUnsupportedOperation {
					t.Errorf("%s: a task that has completed is retried: %v", team, err)
				}
			}
		}
	})
}

// TestRetry_KeepsAnswers: what people have answered is not asked again. A task that waits cannot be retried, nor anything
// that is halted.
func TestRetry_KeepsAnswers(t *testing.T) {
	t.Parallel()
	h := retriesOn(t, rig.Memory(t), noSea)
	h.refuses("two")
	id := h.begin(t, "asks")
	until(t, "the task asks", func() bool {
		_, err := h.monitor.AnswerQuestion(t.Context(), &teamv1.AnswerQuestionRequest{TaskId: id, Answer: &teamv1.AnswerQuestionRequest_Text{Text: "blue"}})
		if err != nil {
			if _, err := h.monitor.RetryTask(t.Context(), &teamv1.RetryTaskRequest{TaskId: id}); refusal(err) != a2aerror.ReasonUnsupportedOperation {
				t.Fatalf("a task that has not ended is retried: %v", err)
			}
		}
		return err == nil
	})
	h.ended(t, id)
	halt := teamv1.NewHaltServiceClient(rig.Services(t, h.Target)[0])
	if _, err := halt.Halt(t.Context(), &teamv1.HaltRequest{Kind: teamv1.HaltKind_HALT_KIND_ACCOUNT, Name: "acme", Reason: "night"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.monitor.RetryTask(t.Context(), &teamv1.RetryTaskRequest{TaskId: id}); refusal(err) != "HALTED" {
		t.Errorf("a halted account retries: %v", err)
	}
	if _, err := halt.Resume(t.Context(), &teamv1.ResumeRequest{Kind: teamv1.HaltKind_HALT_KIND_ACCOUNT, Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	if got := answer(h.ended(t, h.retry(t, id, "").GetTaskId())); got != "two of blue" {
		t.Errorf("the answer is %q", got)
	}
}

// TestRetry_KeyedCallsHaveTheirKey: a call that a cancel has cut off may have had its effect. The retry makes it with the same
// idempotency key, and so does the retry of that one.
func TestRetry_KeyedCallsHaveTheirKey(t *testing.T) {
	t.Parallel()
	begun, keys := make(chan struct{}, 3), make(chan any, 3)
	tools := mcp.NewServer(&mcp.Implementation{Name: "sea", Version: "1"}, nil)
	mcp.AddTool(tools, &mcp.Tool{Name: "pay"}, func(ctx context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		keys <- req.Params.Meta[teammcp.KeyMeta]
		begun <- struct{}{}
		if len(keys) < 3 {
			<-ctx.Done()
			return nil, nil, ctx.Err()
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "paid"}}}, nil, nil
	})
	sea := newServer(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools }, nil).ServeHTTP)
	h := retriesOn(t, rig.Memory(t), sea)
	h.llm.Answer("one", func(r *fakellm.Request) fakellm.Turn {
		if r.Last() == "paid" || r.Last() == "tides" {
			return fakellm.Turn{Text: r.Last() + "!"}
		}
		return fakellm.Turn{Calls: []fakellm.Call{{Name: "pay", Arguments: "{}"}}}
	})
	id := h.begin(t, "dives")
	for range 2 {
		id = h.cutOff(t, id, begun)
	}
	if got := answer(h.ended(t, id)); got != "paid!" {
		t.Errorf("the answer is %q", got)
	}
	if one, two, three := <-keys, <-keys, <-keys; one == "" || one == nil || one != two || one != three {
		t.Errorf("the keys are %v, %v and %v", one, two, three)
	}
}

// TestRetry_UnsafeCallsAreAsked: an unsafe call that a cancel has cut off may have had its effect. The retry asks before it
// calls again.
func TestRetry_UnsafeCallsAreAsked(t *testing.T) {
	t.Parallel()
	begun, dives := make(chan struct{}), 0
	tools := mcp.NewServer(&mcp.Implementation{Name: "sea", Version: "1"}, nil)
	mcp.AddTool(tools, &mcp.Tool{Name: "dive"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		if dives++; dives == 1 {
			close(begun)
			<-ctx.Done()
			return nil, nil, ctx.Err()
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "a pearl"}}}, nil, nil
	})
	sea := newServer(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools }, nil).ServeHTTP)
	h := retriesOn(t, rig.Memory(t), sea)
	h.llm.Answer("one", func(r *fakellm.Request) fakellm.Turn {
		if strings.Contains(r.Last(), "pearl") || r.Last() == "tides" {
			return fakellm.Turn{Text: r.Last() + " and seas"}
		}
		return fakellm.Turn{Calls: []fakellm.Call{{Name: "dive", Arguments: "{}"}}}
	})
	id := h.begin(t, "dives")
	again := h.cutOff(t, id, begun)
	until(t, "the retry asks what became of the call", func() bool {
		_, err := h.monitor.AnswerQuestion(t.Context(), &teamv1.AnswerQuestionRequest{TaskId: again, Answer: &teamv1.AnswerQuestionRequest_Text{Text: "call it again"}})
		return err == nil
	})
	if got := answer(h.ended(t, again)); got != "a pearl and seas" || dives != 2 || h.calls()[0] != 3 {
		t.Errorf("the answer is %q after %d calls of the tool and %d of the model", got, dives, h.calls()[0])
	}
}
