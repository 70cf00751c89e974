package tests

import (
	"fmt"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// TestC_07_FallbackThatCountsMore has a leader whose first model counts a token for eight bytes, and whose
// fallback counts one for each byte. When the fallback answers a later turn of the same conversation, it
// bills no more than was reserved, and what it does not report is booked at no less than its bill.
func TestC_07_FallbackThatCountsMore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		first, second string // providers
		unreported    bool   // the fallback does not report its usage
		files         []*a2av1.Part
	}{
		{name: "reported", first: "openai", second: "anthropic"},
		{name: "not reported", first: "openai", second: "anthropic", unreported: true},
		{name: "the other way round", first: "anthropic", second: "openai", unreported: true},
		{name: "with a file", first: "openai", second: "anthropic", unreported: true, files: []*a2av1.Part{rawFile("a.png", "image/png", picture(t))}},
	} {
		t.Run("C-07 "+c.name, func(t *testing.T) {
			llm := fakellm.New(t)
			url := map[string]string{"openai": llm.URL, "anthropic": llm.Root}
			s := playAgents(t, rig.Memory(t), llm, defined(t, fmt.Sprintf(`version: v1
models:
  small: {provider: %s, name: small, base_url: %q, api_key: none, accepts: ["image/*"], price: {input: 1, output: 2}, max_output_tokens: 500, fallback: [large]}
  large: {provider: %s, name: large, base_url: %q, api_key: none, accepts: ["image/*"], price: {input: 3, output: 4}, max_output_tokens: 500}
agents: {helper: {description: Helps., scripted: {steps: [{text: helped}]}}}
teams:
  desk:
    members: [{agent: helper}]
    coordinator: {leader: {model: small}}
    limits: {max_tokens: 400000, max_cost: 2}
`, c.first, url[c.first], c.second, url[c.second]), nil))
			bytesOf := func(r *fakellm.Request) int64 {
				n := int64(len(r.System))
				for _, m := range r.Messages {
					n += int64(len(m.Text))
					n += 4000 * int64(len(m.Files))
					for _, call := range m.Calls {
						n += int64(len(call.Arguments))
					}
				}
				return n
			}
			bill, turns := int64(0), 0
			llm.Answer("small", func(r *fakellm.Request) fakellm.Turn {
				if turns++; turns > 1 {
					return fakellm.Turn{Status: 503}
				}
				n := bytesOf(r) / 8
				bill += n + 20
				return fakellm.Turn{
					Calls: []fakellm.Call{{Name: "helper", Arguments: `{"task": "Help!"}`}},
					Usage: &fakellm.Usage{PromptTokens: n, CompletionTokens: 20, TotalTokens: n + 20},
				}
			})
			llm.Answer("large", func(r *fakellm.Request) fakellm.Turn {
				n := bytesOf(r)
				bill += n + 9
				return fakellm.Turn{Text: "done", NoUsage: c.unreported, Usage: &fakellm.Usage{PromptTokens: n, CompletionTokens: 9, TotalTokens: n + 9}}
			})
			resp, err := s.client(t, true).Send(t.Context(), s.with("desk", strings.Repeat("Count this! ", 700), c.files...))
			if err != nil {
				t.Fatal(err)
			}
			task := resp.GetTask()
			if state := task.GetStatus().GetState(); state != a2av1.TaskState_TASK_STATE_COMPLETED {
				t.Fatalf("%s: %s", state, agent.Text(task.GetStatus().GetMessage()))
			}
			if got := llm.Requests("large"); len(got) != 1 {
				t.Fatalf("the fallback was asked %d times, want once", len(got))
			}
			spent := runOf(task).GetSpent()
			got := spent.GetInputTokens() + spent.GetOutputTokens()
			if got < bill || spent.GetEstimated() != c.unreported || !c.unreported && got != bill {
				t.Errorf("spent %v, that is %d tokens, and the bill is %d", spent, got, bill)
			}
		})
	}
}
