package tests

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/tests/rig"
)

// askerVariable makes this program an MCP server whose tool pay asks people. Its value is the version
// of MCP: old, in which servers ask while they work on a call, or new.
const askerVariable = "TEAM_TEST_ASKER"

// runAsker serves the tool on standard input and output.
func runAsker() {
	_ = askingBank(os.Getenv(askerVariable), os.Getenv("PAID"), nil).Run(context.Background(), &sdk.StdioTransport{})
}

// askingBank is an MCP server with the tool pay, which asks for an amount, a currency and, if the amount is
// large, a confirmation. It adds a line to the file paid for each payment. When stop is closed, it waits
// for no answer any more.
func askingBank(version, paid string, stop <-chan struct{}) *sdk.Server {
	o := &sdk.ServerOptions{}
	if version == "old" {
		o.SupportedProtocolVersions = []string{"2025-11-25", "2025-06-18"}
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "bank", Version: "1"}, o)
	form := &sdk.ElicitParams{Message: "How much do you pay?", RequestedSchema: json.RawMessage(
		`{"type":"object","properties":{"amount":{"type":"integer","minimum":1,"maximum":1000,"description":"Whole units."},"currency":{"type":"string","enum":["EUR","USD"]}},"required":["amount","currency"]}`)}
	sure := &sdk.ElicitParams{Message: "That is a lot. Are you sure?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"sure":{"type":"boolean"}},"required":["sure"]}`)}
	s.AddTool(&sdk.Tool{Name: "pay", Description: "Pays.", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		say := func(text string) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}, nil
		}
		state := r.Params.RequestState // amounts that were confirmed
		ask := func(p *sdk.ElicitParams) (*sdk.ElicitResult, *sdk.CallToolResult, error) {
			if version == "old" {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				go func() { // the SDK goes on waiting for a client that is gone
					select {
					case <-stop:
						cancel()
					case <-ctx.Done():
					}
				}()
				answer, err := r.Session.Elicit(ctx, p)
				return answer, nil, err
			}
			if answer, ok := r.Params.InputResponses[p.Message].(*sdk.ElicitResult); ok {
				return answer, nil, nil
			}
			return nil, &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{p.Message: p}, RequestState: state}, nil
		}
		if state == "" {
			answer, more, err := ask(form)
			switch {
			case err != nil || more != nil:
				return more, err
			case answer.Action != "accept":
				return say("not paid: " + answer.Action)
			}
			state = fmt.Sprintf("%v %v", answer.Content["amount"], answer.Content["currency"])
		}
		if amount := 0; len(state) > 0 {
			if _, err := fmt.Sscan(state, &amount); err != nil {
				return nil, err
			}
			if amount > 500 {
				answer, more, err := ask(sure)
				switch {
				case err != nil || more != nil:
					return more, err
				case answer.Content["sure"] != true:
					return say("not paid: not sure")
				}
			}
		}
		f, err := os.OpenFile(paid, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if _, err := fmt.Fprintln(f, state); err != nil {
			return nil, err
		}
		return say("paid " + state)
	})
	return s
}

// askerTool returns the configuration of that server as a tool, over a transport, and the file of its
// payments.
func askerTool(t *testing.T, over, version string) (tool, paid string) {
	t.Helper()
	paid = filepath.Join(t.TempDir(), "paid")
	if over == "stdio" {
		self, err := filepath.Abs(os.Args[0])
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("command: [%q], env: {%s: %s, PAID: %q}", self, askerVariable, version, paid), paid
	}
	stop := make(chan struct{})
	s := askingBank(version, paid, stop)
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{Stateless: version == "new"}))
	t.Cleanup(func() {
		close(stop)
		for session := range s.Sessions() {
			_ = session.Close()
		}
		h.Close()
	})
	return "url: " + h.URL, paid
}

// payments returns the payments since the last time.
func payments(t *testing.T, paid string) string {
	t.Helper()
	b, err := os.ReadFile(paid)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	_ = os.Remove(paid)
	return strings.TrimSpace(string(b))
}

// payer is a model that calls the tool pay.
func payer(llm *fakellm.Server) {
	llm.Answer("m", func(r *fakellm.Request) fakellm.Turn {
		if r.Messages[len(r.Messages)-1].Role == "tool" {
			return fakellm.Turn{Text: "the tool says: " + r.Last()}
		}
		return fakellm.Turn{Calls: []fakellm.Call{{Name: "pay", Arguments: "{}"}}}
	})
}

const askerFile = `version: v1
models: {m: {provider: openai, name: m, base_url: "${LLM}"}}
tools: {bank: {mcp: {%s, elicit: {%s}}}}
agents: {clerk: {description: Pays., model: m, tools: [bank]}}
teams:
  desk: {workflow: {steps: [{id: pay, agent: clerk}]}}
  office: {description: Has a desk., members: [{agent: desk}], supervisor: {rules: [{id: a, when: "turn == 1", next: [desk]}, {id: b, when: "true", finish: desk}]}}
`

// TestS_51_ToolAsksPeople: an MCP server asks during a call, over each transport and in each version of
// MCP; people answer on each binding. Answers that do not fit are rejected, and the question stays
// open.
func TestS_51_ToolAsksPeople(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"old", "new"} {
		for _, over := range []string{"stdio", "http"} {
			t.Run(version+" "+over, func(t *testing.T) {
				onStages(t, func(t *testing.T, at rig.Place) { toolAsksPeople(t, at, over, version) })
			})
		}
	}
}

func toolAsksPeople(t *testing.T, place rig.Place, over, version string) {
	llm := fakellm.New(t)
	payer(llm)
	tool, paid := askerTool(t, over, version)
	target, _ := fromFile(t, place, fmt.Sprintf(askerFile, tool, ""), map[string]string{"LLM": llm.URL}, llm)
	target.Headers = map[string]string{"a2a-extensions": a2a.TeamRunURI}
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		begin := func(t *testing.T, team string) *a2av1.Task {
			t.Helper()
			resp, err := c.Send(t.Context(), rig.Text(team, rand.Text(), "pay"))
			if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_INPUT_REQUIRED {
				t.Fatal(resp, err)
			}
			return resp.GetTask()
		}
		answer := func(t *testing.T, task *a2av1.Task, text string) *a2av1.Task {
			t.Helper()
			resp, err := c.Send(t.Context(), inAnswerTo(task, rand.Text(), text))
			if err != nil {
				t.Fatal(err)
			}
			return resp.GetTask()
		}
		says := func(t *testing.T, task *a2av1.Task, want string) {
			t.Helper()
			if got := fmt.Sprint(task.GetArtifacts()); task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || !strings.Contains(got, want) {
				t.Errorf("%s %s, want %s", task.GetStatus(), got, want)
			}
		}
		t.Run("bad answers, and then a good one", func(t *testing.T) {
			task := begin(t, "desk")
			text := fmt.Sprint(task.GetStatus().GetMessage().GetParts())
			for _, want := range []string{"How much do you pay?", `MCP server \"bank\"`, `\"amount\" (required): {\"description\":\"Whole units.\",\"maximum\":1000,\"minimum\":1,`, `\"currency\" (required): {\"enum\":[\"EUR\",\"USD\"]`, "decline"} {
				if !strings.Contains(text, want) {
					t.Errorf("the question does not say %s: %s", want, text)
				}
			}
			q := a2a.RunOf(task.GetMetadata()).GetQuestions()
			if len(q) != 1 || q[0].GetKind() != teamv1.Asked_KIND_INPUT || q[0].GetToolQuestion().GetServer() != "bank" || q[0].GetToolQuestion().GetBy() != "desk/clerk" || q[0].GetToolQuestion().GetSchema() == "" {
				t.Fatal(q)
			}
			for bad, field := range map[string]string{
				"perhaps": "JSON object", `{"amount":"7","currency":"EUR"}`: "amount", `{"amount":7}`: "currency", `{"amount":0,"currency":"EUR"}`: "amount",
				`{"amount":7,"currency":"GBP"}`: "currency", `{"amount":7,"currency":"EUR","tip":1}`: "tip",
			} {
				_, err := c.Send(t.Context(), inAnswerTo(task, rand.Text(), bad))
				if f := rig.Fault(err); f == nil || f.Code != "InvalidArgument" || !strings.Contains(err.Error(), field) {
					t.Errorf("%q: %v", bad, err)
				}
			}
			if got := payments(t, paid); got != "" {
				t.Fatal("paid before anything was answered: ", got)
			}
			says(t, answer(t, task, `{"amount":7,"currency":"EUR"}`), "paid 7 EUR")
			if got := payments(t, paid); got != "7 EUR" {
				t.Errorf("paid %q", got)
			}
		})
		t.Run("a second question in the same call, below another team", func(t *testing.T) {
			task := answer(t, begin(t, "office"), `{"amount":700,"currency":"USD"}`)
			if text := fmt.Sprint(task.GetStatus().GetMessage().GetParts()); !strings.Contains(text, "Are you sure?") {
				t.Fatal(task)
			}
			says(t, answer(t, task, "yes"), "paid 700 USD")
			if got := payments(t, paid); got != "700 USD" {
				t.Errorf("paid %q", got)
			}
		})
		t.Run("declined and cancelled", func(t *testing.T) {
			says(t, answer(t, begin(t, "desk"), "decline"), "not paid: decline")
			says(t, answer(t, begin(t, "desk"), "cancel"), "not paid: cancel")
			if got := payments(t, paid); got != "" {
				t.Errorf("paid %q", got)
			}
		})
		t.Run("the task is canceled meanwhile", func(t *testing.T) {
			task := begin(t, "desk")
			got, err := c.Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: task.GetId()})
			if err != nil || got.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED {
				t.Error(got, err)
			}
			if got := payments(t, paid); got != "" {
				t.Errorf("paid %q", got)
			}
		})
	})
}

// TestS_51_ApprovedToolAsks: a call that people have approved asks them more.
func TestS_51_ApprovedToolAsks(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"old", "new"} {
		t.Run(version, func(t *testing.T) {
			llm := fakellm.New(t)
			payer(llm)
			tool, paid := askerTool(t, "stdio", version)
			file := strings.Replace(fmt.Sprintf(askerFile, tool, ""), "elicit: {}}}", "elicit: {}}, approve: {}}", 1)
			target, _ := fromFile(t, rig.Memory(t), file, map[string]string{"LLM": llm.URL}, llm)
			c := rig.NewREST(target)
			resp, err := c.Send(t.Context(), rig.Text("desk", rand.Text(), "pay"))
			for _, step := range []struct{ asks, answer string }{{"wants to call the tool pay", "approve"}, {"How much do you pay?", `{"amount":3,"currency":"EUR"}`}} {
				if text := fmt.Sprint(resp.GetTask().GetStatus().GetMessage().GetParts()); err != nil || !strings.Contains(text, step.asks) {
					t.Fatalf("asked %s %v, want %s", text, err, step.asks)
				}
				resp, err = c.Send(t.Context(), inAnswerTo(resp.GetTask(), rand.Text(), step.answer))
			}
			if got := payments(t, paid); err != nil || got != "3 EUR" {
				t.Errorf("paid %q %v", got, err)
			}
		})
	}
}

// TestS_51_ToolQuestionExpires: a question without an answer in time is cancelled, and the tool is told.
func TestS_51_ToolQuestionExpires(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"old", "new"} {
		for _, setting := range []string{"expires: 300ms", "expires: 1h, keep_open: 1s"} {
			if version == "new" && strings.Contains(setting, "keep_open") {
				continue // no call is kept open
			}
			t.Run(version+" "+setting, func(t *testing.T) {
				llm := fakellm.New(t)
				payer(llm)
				tool, paid := askerTool(t, "stdio", version)
				target, _ := fromFile(t, rig.Memory(t), fmt.Sprintf(askerFile, tool, setting), map[string]string{"LLM": llm.URL}, llm)
				c := rig.NewREST(target)
				resp, err := c.Send(t.Context(), rig.Text("desk", rand.Text(), "pay"))
				if err != nil {
					t.Fatal(err)
				}
				task := resp.GetTask()
				for over := time.Now().Add(20 * time.Second); task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED && time.Now().Before(over); {
					time.Sleep(20 * time.Millisecond)
					if task, err = c.Get(t.Context(), &a2av1.GetTaskRequest{Id: resp.GetTask().GetId()}); err != nil {
						t.Fatal(err)
					}
				}
				if got := fmt.Sprint(task.GetArtifacts()); !strings.Contains(got, "not paid: cancel") || payments(t, paid) != "" {
					t.Error(got)
				}
			})
		}
	}
}

// TestS_51_ToolAsksThroughServers: a tool of a member on another server asks here; the answer is
// checked here, and reaches it.
func TestS_51_ToolAsksThroughServers(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{`a2a: {card: "${THERE}/office"}`, `grpc: {address: "${GRPC}", agent_id: office}`} {
		t.Run(strings.Fields(kind)[0], func(t *testing.T) {
			llm := fakellm.New(t)
			payer(llm)
			tool, paid := askerTool(t, "stdio", "old")
			there, _ := fromFile(t, rig.Memory(t), fmt.Sprintf(askerFile, tool, ""), map[string]string{"LLM": llm.URL}, llm)
			here, _ := fromFile(t, rig.Memory(t), `version: v1
agents: {far: {description: Elsewhere., `+kind+`}}
teams: {front: {members: [{agent: far}], supervisor: {rules: [{id: a, when: "turn == 1", next: [far]}, {id: b, when: "true", finish: far}]}}}
`, map[string]string{"THERE": there.HTTP, "GRPC": there.GRPC})
			rig.Each(t, here, func(t *testing.T, c rig.Client) {
				resp, err := c.Send(t.Context(), rig.Text("front", rand.Text(), "pay"))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.Send(t.Context(), inAnswerTo(resp.GetTask(), rand.Text(), `{"amount":5}`)); err == nil || !strings.Contains(err.Error(), "currency") {
					t.Errorf("an answer without a currency: %v", err)
				}
				resp, err = c.Send(t.Context(), inAnswerTo(resp.GetTask(), rand.Text(), `{"amount":5,"currency":"EUR"}`))
				if got := fmt.Sprint(resp.GetTask().GetArtifacts()); err != nil || !strings.Contains(got, "paid 5 EUR") {
					t.Error(resp, err)
				}
				if got := payments(t, paid); got != "5 EUR" {
					t.Errorf("paid %q", got)
				}
			})
		})
	}
}
