package tests

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// bank is an MCP server with the tool pay_out, and keeps the arguments that it was called with.
type bank struct {
	url string
	mu  sync.Mutex
	got []string // guarded by mu
}

func newBank(t *testing.T) *bank {
	t.Helper()
	b := &bank{}
	s := sdk.NewServer(&sdk.Implementation{Name: "bank", Version: "1"}, nil)
	for _, name := range []string{"pay_out", "balance"} {
		s.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.got = append(b.got, name+" "+string(r.Params.Arguments))
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "paid"}}}, nil
		})
	}
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil))
	t.Cleanup(func() {
		for session := range s.Sessions() {
			_ = session.Close()
		}
		h.Close()
	})
	b.url = h.URL
	return b
}

// called returns the calls since the last time.
func (b *bank) called() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	got := b.got
	b.got = nil
	return got
}

// TestS_51_ApprovedToolCalls: a tool call waits for a person, on each binding; what was approved is
// what the MCP server receives, and answers that are no decision change nothing.
func TestS_51_ApprovedToolCalls(t *testing.T) {
	t.Parallel()
	onStages(t, approvedToolCalls)
}

func approvedToolCalls(t *testing.T, place rig.Place) {
	llm, b := fakellm.New(t), newBank(t)
	llm.Answer("m", func(r *fakellm.Request) fakellm.Turn {
		if r.Messages[len(r.Messages)-1].Role == "tool" {
			return fakellm.Turn{Text: "the tool says: " + r.Last()}
		}
		return fakellm.Turn{Calls: []fakellm.Call{{Name: "pay_out", Arguments: r.Last()}}}
	})
	target, _ := fromFile(t, place, `version: v1
models: {m: {provider: openai, name: m, base_url: "${LLM}"}}
tools: {bank: {mcp: {url: "${BANK}"}, approve: {tools: ["pay_*"], when: arguments.amount > 100}}}
agents: {clerk: {description: Pays., model: m, tools: [bank]}}
teams: {desk: {workflow: {steps: [{id: pay, agent: clerk}]}}}
`, map[string]string{"LLM": llm.URL, "BANK": b.url}, llm)
	target.Headers = map[string]string{"a2a-extensions": a2a.TeamRunURI}
	const asked = `{"amount":500,"to":"ann"}`
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		begin := func(t *testing.T, arguments string) *a2av1.Task {
			t.Helper()
			resp, err := c.Send(t.Context(), rig.Text("desk", rand.Text(), arguments))
			if err != nil {
				t.Fatal(err)
			}
			return resp.GetTask()
		}
		answer := func(t *testing.T, task *a2av1.Task, text string) (*a2av1.Task, error) {
			t.Helper()
			resp, err := c.Send(t.Context(), inAnswerTo(task, rand.Text(), text))
			return resp.GetTask(), err
		}
		reply := func(task *a2av1.Task) string { return fmt.Sprint(task.GetArtifacts()) }

		t.Run("a call that the condition does not select needs none", func(t *testing.T) {
			task := begin(t, `{"amount":100}`)
			if got := b.called(); task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || !slices.Equal(got, []string{`pay_out {"amount":100}`}) {
				t.Error(got, task)
			}
		})
		t.Run("a call for which the condition cannot be evaluated does", func(t *testing.T) {
			task := begin(t, `{"to":"ann"}`)
			if got := b.called(); task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_INPUT_REQUIRED || got != nil {
				t.Error(got, task)
			}
		})
		t.Run("bad answers, and then the call as it was asked about", func(t *testing.T) {
			task := begin(t, asked)
			q := a2a.RunOf(task.GetMetadata()).GetQuestions()
			if len(q) != 1 || q[0].GetKind() != teamv1.Asked_KIND_APPROVAL || q[0].GetApproval().GetArguments() != asked || q[0].GetApproval().GetHash() != agent.HashOf(asked) {
				t.Fatal(q)
			}
			for _, bad := range []string{"perhaps", "edit: 500", "edit:", "approve the call", "reject: " + strings.Repeat("x", 2000)} {
				_, err := answer(t, task, bad)
				if f := rig.Fault(err); f == nil || f.Code != "InvalidArgument" {
					t.Errorf("%q: %v", bad, err)
				}
			}
			if got := b.called(); got != nil {
				t.Fatal("called before it was approved:", got)
			}
			task, err := answer(t, task, "approve")
			if got := b.called(); err != nil || !slices.Equal(got, []string{"pay_out " + asked}) || !strings.Contains(reply(task), "paid") {
				t.Error(got, task, err)
			}
		})
		t.Run("with other arguments, which the model is told", func(t *testing.T) {
			task, err := answer(t, begin(t, asked), `edit: {"amount":5,"to":"<bob> & co"}`)
			if err != nil {
				t.Fatal(err)
			}
			got := b.called()
			var arguments map[string]any
			if len(got) != 1 || json.Unmarshal([]byte(strings.TrimPrefix(got[0], "pay_out ")), &arguments) != nil || arguments["to"] != "<bob> & co" || arguments["amount"] != 5.0 {
				t.Error(got)
			}
			if !strings.Contains(reply(task), "changed the arguments") {
				t.Error(reply(task))
			}
			t.Logf("asked about %s, the server received %s", asked, got)
		})
		t.Run("not at all, and the model is told why", func(t *testing.T) {
			task, err := answer(t, begin(t, asked), "reject: ann has left")
			if got := b.called(); err != nil || got != nil || !strings.Contains(reply(task), "ann has left") || task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
				t.Error(got, task, err)
			}
		})
	})
}

// TestA_15_LateAnswerWithoutAName: clients that name no question answer at the same time. While the
// tool that was approved runs, another message may be meant as an answer and is refused; later ones
// are messages like any other.
func TestA_15_LateAnswerWithoutAName(t *testing.T) {
	t.Parallel()
	llm, ctx := fakellm.New(t), t.Context()
	running, finish := make(chan struct{}), make(chan struct{})
	hold := func(begun, end chan struct{}) { // until the test goes on
		select {
		case begun <- struct{}{}:
		case <-ctx.Done():
		}
		select {
		case <-end:
		case <-ctx.Done():
		}
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "bank", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{Name: "pay_out", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		hold(running, finish)
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "paid"}}}, nil
	})
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil))
	t.Cleanup(func() {
		for session := range s.Sessions() {
			_ = session.Close()
		}
		h.Close()
	})
	thinking, think := make(chan struct{}), make(chan struct{})
	llm.Answer("m", func(r *fakellm.Request) fakellm.Turn {
		switch {
		case strings.Contains(r.Last(), "in euros"):
			return fakellm.Turn{Text: "done in euros"}
		case r.Messages[len(r.Messages)-1].Role == "tool":
			hold(thinking, think)
			return fakellm.Turn{Text: "done"}
		}
		return fakellm.Turn{Calls: []fakellm.Call{{Name: "pay_out", Arguments: "{}"}}}
	})
	target, _ := fromFile(t, rig.Memory(t), `version: v1
models: {m: {provider: openai, name: m, base_url: "${LLM}"}}
tools: {bank: {mcp: {url: "${BANK}"}, approve: {}}}
agents: {clerk: {description: Pays., model: m, tools: [bank]}}
`, map[string]string{"LLM": llm.URL, "BANK": h.URL}, llm)
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		send := func(task *a2av1.Task, text string) error {
			_, err := c.Send(t.Context(), atOnce(inAnswerTo(task, rand.Text(), text)))
			return err
		}
		resp, err := c.Send(t.Context(), rig.Text("clerk", rand.Text(), "pay"))
		if err != nil {
			t.Fatal(err)
		}
		task := resp.GetTask()
		if err := send(task, "approve"); err != nil {
			t.Fatal(err)
		}
		<-running
		f := rig.Fault(send(task, "reject: fraud"))
		if f == nil || f.Reason != agent.ReasonQuestionAnswered || !strings.Contains(f.Message, `"approve"`) {
			t.Fatalf("a second answer got %v, want QUESTION_ANSWERED with the first", f)
		}
		finish <- struct{}{}
		<-thinking
		if err := send(task, "in euros"); err != nil {
			t.Errorf("a message after the tool has ended: %v", err)
		}
		think <- struct{}{}
	})
}
