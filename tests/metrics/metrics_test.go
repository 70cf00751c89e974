// Package metrics tests what Prometheus reads of a server.
package metrics

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
	"github.com/agentteams/team-server/tests/rig/whole"
)

func TestMain(m *testing.M) { rig.VerifyMain(m) }

const file = `version: v1
models:
  small: {provider: openai, name: small, base_url: "${LLM}", api_key: none, price: {input: 1, output: 2}}
agents:
  writer: {description: Writes., model: small}
  asks: {scripted: {steps: [{ask: "which?"}, {text: "{{answer}}"}]}}
  slips: {scripted: {steps: [{fail: 1}, {text: done}]}}
  fails: {scripted: {steps: [{fail: 1000}]}}
teams:
  desk: {members: [{agent: writer}], workflow: {steps: [{id: say, agent: writer}]}}
  asking: {members: [{agent: asks}], workflow: {steps: [{id: say, agent: asks}]}}
  failing: {members: [{agent: fails}], workflow: {steps: [{id: say, agent: fails}]}, limits: {retry: {attempts: 1}}}
  slipping: {members: [{agent: slips}], workflow: {steps: [{id: say, agent: slips}]}, limits: {retry: {attempts: 2, backoff: 1ms}}}
server:
  default_agent: desk
  metrics: 127.0.0.1:0
  auth:
    api_keys:
      - {name: ann, account: acme, sha256: "${ANN}", permissions: [READ, CALL, ANSWER, MANAGE, ADMIN]}
      - {name: bob, account: acme, sha256: "${BOB}"}
      - {name: eve, account: other, sha256: "${EVE}"}
  accounts:
    other: {requests_per_second: 0.001, burst: 1}
`

// families is what a scrape has read.
type families map[string]*dto.MetricFamily

// scraped reads the metrics of a server.
func scraped(t testing.TB, address string) families {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		t.Fatalf("status %d: %s", resp.StatusCode, b)
	}
	p := expfmt.NewTextParser(model.LegacyValidation)
	all, err := p.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// sum returns the sum of the series of a family with these labels, each as name=value.
func (f families) sum(name string, labels ...string) float64 {
	sum := 0.0
	for _, m := range f[name].GetMetric() {
		if !has(m, labels) {
			continue
		}
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return sum
}

// series returns the number of series of the server's own metrics.
func (f families) series() int {
	n := 0
	for name, family := range f {
		if strings.HasPrefix(name, "team_server_") {
			for _, m := range family.GetMetric() {
				n += 1 + len(m.GetHistogram().GetBucket())
			}
		}
	}
	return n
}

func has(m *dto.Metric, labels []string) bool {
	for _, want := range labels {
		found := false
		for _, l := range m.GetLabel() {
			found = found || l.GetName()+"="+l.GetValue() == want
		}
		if !found {
			return false
		}
	}
	return true
}

// until scrapes until a condition holds.
func until(t testing.TB, address, what string, holds func(families) bool) families {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		f := scraped(t, address)
		if holds(f) {
			return f
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not seen", what)
		}
	}
}

// TestT_44_Counts: what Prometheus reads while requests arrive over three bindings can be parsed, and in the end
// equals what was sent, and what the server says that it has spent.
func TestT_44_Counts(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		llm := fakellm.New(t)
		llm.Answer("small", func(*fakellm.Request) fakellm.Turn {
			return fakellm.Turn{Text: "said", Usage: &fakellm.Usage{PromptTokens: 100, CompletionTokens: 30, TotalTokens: 130}}
		})
		s := whole.Open(t, place, file, llm)
		const each = 15
		var sending sync.WaitGroup
		for _, c := range rig.Clients(t, s.Target) {
			sending.Go(func() {
				for i := range each {
					resp, err := c.Send(t.Context(), rig.Text("desk", fmt.Sprint(c.Binding(), i), "x"))
					if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
						t.Error(c.Binding(), resp, err)
						return
					}
					if _, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: "no-such-task"}); rig.Fault(err).Code != "NotFound" {
						t.Error(err)
					}
					for _, err := range c.Stream(t.Context(), rig.Text("desk", fmt.Sprint("f", c.Binding(), i), "x")) {
						if err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		scraping, stop := context.WithCancel(t.Context())
		var reading sync.WaitGroup
		reading.Go(func() {
			for scraping.Err() == nil {
				scraped(t, s.Running.Metrics)
			}
		})
		sending.Wait()
		stop()
		reading.Wait()
		for _, id := range []string{"failing", "slipping"} {
			if _, err := rig.NewREST(s.Target).Send(t.Context(), rig.Text(id, id, "x")); err != nil {
				t.Fatal(err)
			}
		}
		const all = 3 * each
		// A call has ended for its caller before it is counted.
		f := until(t, s.Running.Metrics, "all requests", func(f families) bool {
			return f.sum("team_server_requests_total") == 3*all+2 && f.sum("team_server_streams_open") == 0 && f.sum("team_server_runs_active") == 0
		})
		for _, binding := range []string{"grpc", "rest", "jsonrpc"} {
			b := "binding=" + binding
			for _, c := range []struct{ method, code string }{{"SendMessage", "OK"}, {"GetTask", "NotFound"}, {"SendStreamingMessage", "OK"}} {
				if n := f.sum("team_server_requests_total", b, "method="+c.method, "code="+c.code); n != each && (binding != "rest" || c.method != "SendMessage" || n != each+2) {
					t.Errorf("%s %s %s: %v requests, want %d", binding, c.method, c.code, n, each)
				}
				if n := f.sum("team_server_request_duration_seconds", b, "method="+c.method); n < each || n > each+2 {
					t.Errorf("%s %s: %v durations, want %d", binding, c.method, n, each)
				}
			}
		}
		for _, c := range []struct {
			name   string
			labels []string
			want   float64
		}{
			{"team_server_runs_started_total", []string{"agent=desk"}, 2 * all},
			{"team_server_runs_ended_total", []string{"agent=desk", "outcome=succeeded"}, 2 * all},
			{"team_server_runs_ended_total", []string{"agent=slipping", "outcome=succeeded"}, 1},
			{"team_server_runs_ended_total", []string{"agent=failing", "outcome=failed"}, 1},
			{"team_server_runs_claimed_total", nil, 2*all + 2},
			{"team_server_run_duration_seconds", nil, 2*all + 2},
			{"team_server_steps_ended_total", []string{"outcome=succeeded"}, 4*all + 1}, // of desk the member, and its model
			{"team_server_steps_ended_total", []string{"outcome=failed"}, 1},
			{"team_server_attempts_total", nil, 4*all + 3},
			{"team_server_retries_total", nil, 1},
			{"team_server_model_calls_total", []string{"model=small"}, 2 * all},
			{"team_server_tokens_total", []string{"model=small", "kind=input"}, 2 * 100 * all},
			{"team_server_tokens_total", []string{"model=small", "kind=output"}, 2 * 30 * all},
			{"team_server_build_info", nil, 1},
		} {
			if got := f.sum(c.name, c.labels...); got != c.want {
				t.Errorf("%s%v is %v, want %v", c.name, c.labels, got, c.want)
			}
		}
		resp, err := teamv1.NewMonitorServiceClient(rig.Services(t, s.Target)[0]).ListCosts(t.Context(), &teamv1.ListCostsRequest{GroupBy: teamv1.CostGroup_COST_GROUP_MODEL})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := f.sum("team_server_cost_usd_total"), float64(resp.GetTotal().GetSpent().GetCostMicros())/1e6; want == 0 || got < want-1e-9 || got > want+1e-9 {
			t.Errorf("the cost is %v USD, and the server says %v", got, want)
		}
		if n := f.sum("team_server_store_operation_duration_seconds", "operation=create"); n != 2*all+2 {
			t.Errorf("%v tasks were created, want %d", n, 2*all+2)
		}
		if n := f.sum("team_server_store_group_size"); place.Durable && n == 0 {
			t.Error("no group of changes was measured")
		}
	})
}

// TestT_44_Waiting: tasks that wait for people, refused callers, and limits are visible. The public addresses
// have no metrics.
func TestT_44_Waiting(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		s := whole.Open(t, place, file, fakellm.New(t))
		bound := s.Running.Metrics
		c := rig.NewREST(s.Target)
		task, err := c.Send(t.Context(), rig.Text("asking", "m", "x"))
		if err != nil || task.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_INPUT_REQUIRED {
			t.Fatal(task, err)
		}
		f := until(t, bound, "an open question", func(f families) bool {
			return f.sum("team_server_tasks_open", "state=input_required") == 1
		})
		if got := f.sum("team_server_tasks_open_oldest_age_seconds", "state=input_required"); got <= 0 || got > 300 {
			t.Errorf("the question is %v seconds old", got)
		}
		stranger := rig.Target{GRPC: s.GRPC, HTTP: s.HTTP, Key: "wrong"}
		for _, c := range rig.Clients(t, stranger) {
			if _, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: "x"}); rig.Fault(err).Code != "Unauthenticated" {
				t.Errorf("%s: %v", c.Binding(), err)
			}
		}
		for i := range 3 {
			_, err := rig.NewREST(s.As("other", "eve")).Get(t.Context(), &a2av1.GetTaskRequest{Id: "x"})
			if code := rig.Fault(err).Code; (code == "ResourceExhausted") != (i > 0) {
				t.Errorf("request %d: %v", i, err)
			}
		}
		f = until(t, bound, "all refusals", func(f families) bool {
			return f.sum("team_server_sign_ins_refused_total", "reason=unknown_key") == 3 && f.sum("team_server_limits_hit_total", "limit=requests_per_second") == 2
		})
		if n := f.sum("team_server_requests_total", "method=none", "code=Unauthenticated"); n != 3 {
			t.Errorf("%v refused requests, want 3", n)
		}
		if n := f.sum("team_server_questions_total", "event=asked"); n != 1 {
			t.Errorf("%v questions, want 1", n)
		}
		for _, key := range []string{s.Key, ""} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.HTTP+"/metrics", nil)
			if err != nil {
				t.Fatal(err)
			}
			if key != "" {
				req.Header.Set("Authorization", "Bearer "+key)
			}
			resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("the public address answers %d", resp.StatusCode)
			}
		}
	})
}

// TestT_44_Series: two thousand agents that have worked leave the number of series as it was with the first hundred.
// Agents that were made by the API have no name in metrics at all. TestT_44_ManyAgents has 100,000, without a server.
func TestT_44_Series(t *testing.T) {
	t.Parallel()
	const named, all = 100, 2000
	var many strings.Builder
	many.WriteString("version: v1\nserver: {metrics: \"127.0.0.1:0\"}\nagents:\n")
	for i := range all {
		fmt.Fprintf(&many, "  a%d: {scripted: {steps: [{text: done}]}}\n", i)
	}
	s := whole.Open(t, rig.Memory(t), many.String(), fakellm.New(t))
	agents := teamv1.NewRegistryServiceClient(rig.Services(t, s.Target)[0])
	c := rig.Clients(t, s.Target)[0]
	work := func(id string) {
		resp, err := c.Send(t.Context(), rig.Text(id, id, "x"))
		if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			t.Fatal(resp, err)
		}
	}
	make := func(id string) {
		_, err := agents.RegisterAgent(t.Context(), &teamv1.RegisterAgentRequest{AgentId: id, Config: &teamv1.AgentConfig{
			Scripted: &teamv1.ScriptedAgent{Steps: []*teamv1.ScriptedStep{{Do: &teamv1.ScriptedStep_Text{Text: "done"}}}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		work(id)
	}
	ended := func(n float64, labels ...string) families {
		return until(t, s.Running.Metrics, "the ends", func(f families) bool { return f.sum("team_server_runs_ended_total", labels...) == n })
	}
	make("made-0")
	ended(1, "agent=other")
	for i := range named {
		work(fmt.Sprint("a", i))
	}
	before := ended(1 + named)
	if n := before.sum("team_server_runs_ended_total", "agent=a7"); n != 1 {
		t.Errorf("the agent of the file has %v runs, want 1", n)
	}
	for i := named; i < all; i++ {
		work(fmt.Sprint("a", i))
	}
	make("made-1")
	after := ended(float64(2 + all))
	if n := after.sum("team_server_runs_ended_total", "agent=other"); n != float64(2+all-named) {
		t.Errorf("others have %v runs, want %d", n, 2+all-named)
	}
	if before.series() != after.series() {
		t.Errorf("%d series with %d agents, %d with %d", before.series(), named, after.series(), all)
	}
	t.Logf("%d series with %d agents, %d with %d", before.series(), named, after.series(), all)
}

// TestT_44_AccountsUsed: which part of its limits an account has used is seen, without the name of the account.
func TestT_44_AccountsUsed(t *testing.T) {
	t.Parallel()
	limited := strings.Replace(file, "  accounts:\n", "  accounts:\n    acme: {max_tokens_per_day: 1000000, max_cost_per_day: 0.5}\n", 1)
	llm := fakellm.New(t)
	llm.Answer("small", func(*fakellm.Request) fakellm.Turn {
		return fakellm.Turn{Text: "said", Usage: &fakellm.Usage{PromptTokens: 100, CompletionTokens: 30, TotalTokens: 130}}
	})
	s := whole.Open(t, rig.Memory(t), limited, llm)
	if f := scraped(t, s.Running.Metrics); f.sum("team_server_accounts_used_ratio", "limit=max_cost_per_day") != 0 {
		t.Error("the account has used of its limit before its first task")
	}
	resp, err := rig.Clients(t, s.Target)[0].Send(t.Context(), rig.Text("desk", "m1", "write"))
	if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
		t.Fatal(resp, err)
	}
	f := until(t, s.Running.Metrics, "what the account has used", func(f families) bool {
		return f.sum("team_server_accounts_used_ratio", "limit=max_cost_per_day") > 0
	})
	spent, tokens := f.sum("team_server_cost_usd_total"), f.sum("team_server_tokens_total")
	for limit, want := range map[string]float64{"max_cost_per_day": spent / .5, "max_tokens_per_day": tokens / 1e6} {
		if got := f.sum("team_server_accounts_used_ratio", "limit="+limit); math.Abs(got-want) > 1e-9 || got == 0 {
			t.Errorf("%s: %v is used, want %v", limit, got, want)
		}
	}
	if n := len(f["team_server_accounts_used_ratio"].GetMetric()); n != 2 {
		t.Errorf("%d series, want one for each of the two limits", n)
	}
}
