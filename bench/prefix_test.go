package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/agentteams/team-server/bench/measure"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
	"github.com/agentteams/team-server/pkg/model/anthropic"
	"github.com/agentteams/team-server/pkg/model/openai"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// BenchmarkPrefix measures what share of the input of all requests of a run repeats an earlier request byte for
// byte, from its beginning: the part that a provider can take from its prompt cache.
func BenchmarkPrefix(b *testing.B) {
	t := &measure.Table{Title: "input of models that repeats over the turns of a run", Once: true, Head: "run\tprovider\tturns\tbytes\trepeated"}
	for _, provider := range []string{"openai", "anthropic"} {
		for _, kind := range []string{"agent", "coordinator"} {
			for _, turns := range []int{3, 10, 30} {
				n, share := repeated(b, provider, kind, turns)
				t.Add("%s\t%s\t%d\t%d\t%.3f", kind, provider, turns, n, share)
				b.ReportMetric(share, fmt.Sprintf("%s-%s-%d", kind, provider, turns))
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	t.Print()
}

// TestPrefix: each request of a run begins with all of the request before it.
func TestPrefix(t *testing.T) {
	for _, provider := range []string{"openai", "anthropic"} {
		for _, kind := range []string{"agent", "coordinator"} {
			recorded := play(t, provider, kind, 10)
			for i, prompt := range recorded[1:] {
				if !bytes.HasPrefix(prompt, recorded[i]) {
					t.Errorf("%s, %s: request %d has %d bytes in common with the %d bytes of the one before it", kind, provider, i+2, common(prompt, recorded[i]), len(recorded[i]))
				}
			}
		}
	}
}

// repeated plays a run and returns the size of the input of all of its requests, and the share that repeats.
func repeated(tb testing.TB, provider, kind string, turns int) (size int, share float64) {
	tb.Helper()
	same := 0
	var last []byte
	for _, prompt := range play(tb, provider, kind, turns) {
		size, same = size+len(prompt), same+common(prompt, last)
		last = prompt
	}
	return size, float64(same) / float64(size)
}

// common returns the length of the beginning that two texts share.
func common(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// play runs an agent or a coordinator whose model calls a tool or a member in each of its turns but the last,
// and returns the prompts of all requests.
func play(tb testing.TB, provider, kind string, turns int) [][]byte {
	tb.Helper()
	w := &wireOf{provider: provider, turns: turns, tool: "look"}
	m := w.model(tb)
	job := measure.Job{Input: "0", Answer: "done"}
	switch kind {
	case "agent":
		a, err := leader.NewAgent(leader.AgentConfig{ID: "bench", Model: m, Instructions: strings.Repeat("Be brief. ", 200), Tools: []agent.Tool{looker{}}, Limits: most()})
		if err != nil {
			tb.Fatal(err)
		}
		job.Agent = a
	default:
		w.tool = "delegate_to_m1"
		ids := memberIDs(5)
		var members []team.Member
		for _, id := range ids {
			members = append(members, team.Member{Agent: id, Description: "counts one up from the number it is given"})
		}
		limits := most()
		limits.MaxDelegations = limits.MaxSteps
		lead, err := leader.NewCoordinator(leader.CoordinatorConfig{Members: members, Instructions: strings.Repeat("Be brief. ", 200), Limits: limits})
		if err != nil {
			tb.Fatal(err)
		}
		job.Agent = staffed(tb, team.Config{Scheduler: lead, Model: m, Limits: limits, ReportErrors: true}, ids)
	}
	if err := job.Loop()(tb.Context(), 0); err != nil {
		tb.Fatal(err)
	}
	if len(w.prompts) != turns {
		tb.Fatalf("%d requests, want %d", len(w.prompts), turns)
	}
	return w.prompts
}

// looker is a tool with a result of a kilobyte.
type looker struct{}

// Spec implements agent.Tool.
func (looker) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: "look", Description: "Looks something up.", Parameters: json.RawMessage(`{"type":"object","properties":{"task":{"type":"string"}}}`), Effect: agent.EffectSafe}
}

// Call implements agent.Tool.
func (looker) Call(context.Context, json.RawMessage, string) (*teamv1.ToolResult, error) {
	return &teamv1.ToolResult{Text: strings.Repeat("what was found ", 70)}, nil
}

// wireOf is the endpoint of a provider. It calls a tool in each turn but the last.
type wireOf struct {
	provider, tool string
	turns          int
	prompts        [][]byte
}

// model returns the model behind the endpoint.
func (w *wireOf) model(tb testing.TB) agent.Model {
	tb.Helper()
	c := model.Config{Name: "m", BaseURL: "http://model.invalid", HTTPClient: &http.Client{Transport: w}}
	var m agent.Model
	var err error
	if w.provider == "anthropic" {
		m, err = anthropic.New(c)
	} else {
		m, err = openai.New(c)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// RoundTrip implements http.RoundTripper.
func (w *wireOf) RoundTrip(r *http.Request) (*http.Response, error) {
	var body struct {
		System   json.RawMessage
		Tools    json.RawMessage
		Messages []json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return nil, err
	}
	prompt := append(append([]byte{}, body.Tools...), body.System...)
	for _, m := range body.Messages {
		prompt = append(prompt, m...)
	}
	prompt = bytes.ReplaceAll(prompt, []byte(`,"cache_control":{"type":"ephemeral"}`), nil) // not a part of the input
	w.prompts = append(w.prompts, prompt)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(w.answer())),
	}, nil
}

// answer is the answer to the latest request, which is not streamed.
func (w *wireOf) answer() string {
	n := len(w.prompts)
	switch last := n == w.turns; {
	case w.provider == "anthropic" && last:
		return `{"type":"message","model":"m","content":[{"type":"text","text":"done"}],"stop_reason":"end_turn"}`
	case w.provider == "anthropic":
		return fmt.Sprintf(`{"type":"message","model":"m","content":[{"type":"tool_use","id":"c%d","name":%q,"input":{"task":"%d"}}],"stop_reason":"tool_use"}`, n, w.tool, n)
	case last:
		return `{"choices":[{"message":{"content":"done"},"finish_reason":"stop"}]}`
	}
	return fmt.Sprintf(`{"choices":[{"message":{"tool_calls":[{"id":"c%d","function":{"name":%q,"arguments":"{\"task\":\"%d\"}"}}]},"finish_reason":"tool_calls"}]}`, n, w.tool, n)
}
