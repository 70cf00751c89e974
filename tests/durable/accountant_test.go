//go:build linux

package durable

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/tests/rig"
)

// pricedFile is the configuration file of TestS_60_Accountant. In millionths of a USD, an input token
// costs 1, a cached one 0.1, an output token 2, and a task of the clerk, an agent on another server
// that reports no cost, 500. Each run may cost 2000.
const pricedFile = `version: v1
models:
  m: {provider: openai, name: m, base_url: "LLM", api_key: k, price: {input: 1, output: 2, cached_input: 0.1}, max_output_tokens: 120, idle_timeout: 2s, fallback: [n]}
  n: {provider: openai, name: n, base_url: "LLM", api_key: k, price: {input: 1, output: 2, cached_input: 0.1}, max_output_tokens: 120}
agents:
  writer: {description: Writes., model: m}
  single: {description: Has one model., model: n}
  clerk: {description: Files., a2a: {card: "CARD", cost_per_task: 0.0005}}
teams:
  desk:
    members: [{agent: writer}]
    workflow: {steps: [{id: a, agent: writer}]}
    limits: {max_cost: 0.002, retry: {attempts: 4, backoff: 10ms}}
  alone:
    members: [{agent: single}]
    workflow: {steps: [{id: a, agent: single}]}
    limits: {max_cost: 0.002, retry: {attempts: 4, backoff: 1ms}}
  office:
    members: [{agent: clerk}]
    workflow: {steps: [{id: a, agent: clerk}, {id: b, agent: clerk, task: "Again: {{input}}"}]}
    limits: {max_cost: 0.002}
  crowded:
    members: [{agent: clerk}]
    workflow: {steps: [{id: a, agent: clerk, repeat: {max: 9, until: "false"}}]}
    limits: {max_cost: 0.002}
`

// TestS_60_Accountant compares, for each fault of a provider or a process, what the provider has
// billed with what the server says that the run has spent. The bill is counted by the fake provider,
// whatever it reports.
func TestS_60_Accountant(t *testing.T) {
	words := func(n int) string { return strings.TrimSpace(strings.Repeat("word ", n)) }
	good := fakellm.Turn{Text: words(40)}
	for _, c := range []struct {
		fault     string
		team      string         // desk unless set
		turns     []fakellm.Turn // of the first model, before good ones
		kill      bool           // the process, while the first turn is held
		reason    string         // of the failure of the run; empty means COMPLETED
		estimated bool           // what the provider has billed is not known in full
		over      bool           // the provider bills more than the limit
	}{
		{fault: "none"},
		{fault: "no usage", turns: []fakellm.Turn{{Text: words(40), NoUsage: true}}, estimated: true},
		{fault: "broken stream", turns: []fakellm.Turn{{Text: words(100), Chunks: 10, Broken: true, BreakAfter: 9}}, estimated: true},
		{fault: "every stream breaks", team: "alone", reason: "UNAVAILABLE", turns: []fakellm.Turn{{Text: words(100), Chunks: 10, Broken: true, BreakAfter: 9, Forever: true}}, estimated: true},
		{fault: "kill in flight", turns: []fakellm.Turn{{Text: words(100), Chunks: 10, Gate: fakellm.NewGate(), GateAfter: 8}}, kill: true, estimated: true},
		{fault: "silent stream", turns: []fakellm.Turn{{Text: words(100), Chunks: 10, Gate: fakellm.NewGate(), GateAfter: 8}}, estimated: true},
		{fault: "cached tokens", turns: []fakellm.Turn{{Text: words(40), Usage: &fakellm.Usage{
			PromptTokens: 60, CompletionTokens: 40, TotalTokens: 100, Details: &fakellm.PromptDetails{CachedTokens: 50},
		}}}},
		{fault: "refused attempts", turns: []fakellm.Turn{{Status: 429}, {Status: 500}}},
		{fault: "bill above the reservation", turns: []fakellm.Turn{{Text: "x", Usage: &fakellm.Usage{PromptTokens: 5000, CompletionTokens: 1, TotalTokens: 5001}}},
			reason: "BUDGET_EXCEEDED", over: true},
		{fault: "plain A2A member", team: "office"},
		{fault: "plain A2A member, until the money is gone", team: "crowded", reason: "BUDGET_EXCEEDED"},
	} {
		t.Run("S-60 "+c.fault, func(t *testing.T) {
			t.Parallel()
			if c.team == "" {
				c.team = "desk"
			}
			llm, clerk := fakellm.New(t), fakeagent.New(t, fakeagent.Config{})
			llm.Script(map[string]string{"desk": "m", "alone": "n"}[c.team], c.turns...)
			for _, model := range []string{"m", "n"} {
				llm.Answer(model, func(*fakellm.Request) fakellm.Turn { return good })
			}
			file := filepath.Join(t.TempDir(), "team.yaml")
			text := strings.NewReplacer("LLM", llm.URL, "CARD", clerk.URL()).Replace(pricedFile)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			start := command{config: file, store: sqlite(t), dir: t.ArtifactDir(), args: []string{"--lease=1s"}}
			r, err := start.start()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.end(syscall.SIGKILL) })
			req := rig.Text(c.team, "m-1", "Write about the tides.")
			req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
			sent, err := rig.NewREST(r.target).Send(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if c.kill {
				if err := c.turns[0].Gate.Wait(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				r.end(syscall.SIGKILL)
				if r, err = start.start(); err != nil {
					t.Fatal(err)
				}
			}
			var task *a2av1.Task
			await(t, "the end of the task", func() bool {
				task, err = rig.NewREST(r.target).Get(t.Context(), &a2av1.GetTaskRequest{Tenant: c.team, Id: sent.GetTask().GetId()})
				if err != nil {
					t.Fatal(err)
				}
				return a2a.RunOf(task.GetMetadata()).GetSpent() != nil && task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_WORKING
			})
			if err := llm.Quiet(t.Context()); err != nil {
				t.Fatal(err)
			}
			run := a2a.RunOf(task.GetMetadata())
			bill := billOf(llm) + 500*int64(clerk.Played())
			spent := run.GetSpent()
			t.Logf("%-42s %-22s bill %5d  spent %5d%s  limit 2000  %s", c.fault, task.GetStatus().GetState(), bill, spent.GetCostMicros(), mark(spent), run.GetError().GetReason())
			if got := run.GetError().GetReason(); got != c.reason || (c.reason == "") != (task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_COMPLETED) {
				t.Errorf("%s, reason %q, want %q: %v", task.GetStatus().GetState(), got, c.reason, run.GetError())
			}
			if spent.GetEstimated() != c.estimated || spent.GetCostMicros() < bill || !c.estimated && spent.GetCostMicros() != bill {
				t.Errorf("spent %v, and the bill is %d", spent, bill)
			}
			if costs := costsOf(t, r); !proto.Equal(costs.GetSpent(), spent) || (costs.GetEstimated() != nil) != c.estimated {
				t.Errorf("ListCosts says %v, and the task has spent %v", costs, spent)
			}
			if bill > 2000 != c.over || bill == 0 {
				t.Errorf("the bill is %d, and the limit 2000", bill)
			}
			if c.over && !strings.Contains(r.said(), "a provider billed more than the turn was allowed") {
				t.Errorf("the log does not say that the provider billed more:\n%s", r.tail())
			}
		})
	}
}

// costsOf returns what all tasks of a server have spent.
func costsOf(t *testing.T, r *replica) *teamv1.CostShare {
	t.Helper()
	resp, err := teamv1.NewMonitorServiceClient(rig.Services(t, r.target)[1]).ListCosts(t.Context(), &teamv1.ListCostsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetTotal()
}

// billOf returns what the provider charges for all requests, in millionths of a USD.
func billOf(llm *fakellm.Server) (micros int64) {
	tenths := int64(0)
	for _, r := range llm.Requests() {
		u, cached := r.Billed, int64(0)
		if u.Details != nil {
			cached = u.Details.CachedTokens
		}
		tenths += 10*(u.PromptTokens-cached) + cached + 20*u.CompletionTokens
	}
	return (tenths + 5) / 10
}

func mark(s *teamv1.Spent) string {
	if s.GetEstimated() {
		return "~"
	}
	return " "
}

// TestS_60_CostsThatNobodyReports: a file in which max_cost limits something whose cost is not known
// is rejected with the line to write.
func TestS_60_CostsThatNobodyReports(t *testing.T) {
	for _, c := range []struct{ remove, says string }{
		{", price: {input: 1, output: 2, cached_input: 0.1}, max_output_tokens: 120, idle_timeout: 2s, fallback: [n]", `model "m" has no price, and max_cost of "desk" limits it`},
		{", cost_per_task: 0.0005", `agent "clerk" has no cost_per_task, and max_cost of "crowded" limits it`},
	} {
		text := strings.NewReplacer("LLM", "http://127.0.0.1:1/v1", "CARD", "http://127.0.0.1:1", c.remove, "").Replace(pricedFile)
		file := filepath.Join(t.TempDir(), "team.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := command{config: file, store: sqlite(t), dir: t.ArtifactDir()}.start()
		if err == nil || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("started with %q removed: %v", c.remove, err)
		}
	}
}
