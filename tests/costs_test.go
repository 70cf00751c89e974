package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/storetest"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// costsFile has a team in a team, a leader that calls a tool-less member, a member that is called with a
// fallback, and a model that does not report what it used.
const costsFile = `version: v1
models:
  small: {provider: openai, name: small, base_url: URL, api_key: none, price: {input: 1, output: 2, cached_input: 0.1}}
  large: {provider: openai, name: large, base_url: URL, api_key: none, price: {input: 10, output: 20}}
  silent: {provider: openai, name: silent, base_url: URL, api_key: none, price: {input: 1, output: 1}, max_output_tokens: 50}
agents:
  writer: {description: Writes., model: small}
  critic: {description: Reads., model: large}
  quiet: {description: Says nothing of its cost., model: silent}
teams:
  inner:
    members: [{agent: writer}, {agent: quiet}]
    workflow: {steps: [{id: a, agent: writer}, {id: b, agent: quiet}]}
  outer:
    members: [{agent: inner}, {agent: critic}]
    coordinator: {leader: {model: large}}
`

// TestS_60_Costs: the costs of all tasks are the sum of what each says that it has spent, and what the
// provider bills; by agent, team, model, account and day, for the whole and for a part; over each binding.
func TestS_60_Costs(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		llm := fakellm.New(t)
		usage := func(in, out, cached int64) *fakellm.Usage {
			return &fakellm.Usage{PromptTokens: in, CompletionTokens: out, TotalTokens: in + out, Details: &fakellm.PromptDetails{CachedTokens: cached}}
		}
		llm.Answer("small", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "said", Usage: usage(100, 30, 40)} })
		llm.Answer("silent", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "said", NoUsage: true} })
		llm.Answer("large", func(r *fakellm.Request) fakellm.Turn {
			if strings.Contains(r.Last(), "Ask inner") {
				return fakellm.Turn{Usage: usage(10, 5, 0), Calls: []fakellm.Call{{Name: "inner", Arguments: `{"task": "go"}`}}}
			}
			return fakellm.Turn{Text: "done", Usage: usage(20, 1, 0)}
		})
		clock := storetest.NewClock()
		store := onClock(t, place, clock)
		admin := rig.Admin("acme", "admin")
		target := rig.Serve(t, server.Config{
			Agents:   defined(t, strings.ReplaceAll(costsFile, "URL", fmt.Sprintf("%q", llm.URL)), nil),
			Store:    store,
			Settings: rig.Keys(admin, rig.Key("acme", "ann"), rig.Key("other", "eve")),
		})
		all := &teamv1.Spent{}
		spend := func(account, principal, team, text string) *teamv1.Spent {
			t.Helper()
			resp, err := rig.NewREST(target.As(account, principal)).Send(t.Context(), rig.Text(team, fmt.Sprint(account, team, clock.Now().Unix()), text))
			if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
				t.Fatal(resp, err)
			}
			spent := runOf(resp.GetTask()).GetSpent()
			all = agent.AddSpent(all, spent)
			return spent
		}
		outer := spend("acme", "ann", "outer", "Ask inner")
		clock.Move(26 * time.Hour)
		inner, writer := spend("other", "eve", "inner", "go"), spend("other", "eve", "writer", "go")

		admins := rig.Services(t, target.As("acme", "admin"))
		read := func(t *testing.T, s rig.Service, req *teamv1.ListCostsRequest) (keys map[string]int64, total *teamv1.CostShare) {
			t.Helper()
			resp, err := teamv1.NewMonitorServiceClient(s).ListCosts(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			keys = map[string]int64{}
			for _, share := range resp.GetShares() {
				keys[share.GetKey()] = share.GetSpent().GetCostMicros()
			}
			return keys, resp.GetTotal()
		}
		quiet := inner.GetCostMicros() - writer.GetCostMicros() // estimated
		small, leader := writer.GetCostMicros(), outer.GetCostMicros()-inner.GetCostMicros()
		for _, s := range admins {
			t.Run("S-60 "+s.Binding(), func(t *testing.T) {
				for _, c := range []struct {
					by   teamv1.CostGroup
					req  *teamv1.ListCostsRequest
					want map[string]int64
				}{
					{teamv1.CostGroup_COST_GROUP_MEMBER, &teamv1.ListCostsRequest{}, map[string]int64{
						"outer": leader, "outer/inner/writer": small, "outer/inner/quiet": quiet, "inner/writer": small, "inner/quiet": quiet, "writer": small,
					}},
					{teamv1.CostGroup_COST_GROUP_TEAM, &teamv1.ListCostsRequest{}, map[string]int64{"outer": leader, "outer/inner": small + quiet, "inner": small + quiet, "writer": small}},
					{teamv1.CostGroup_COST_GROUP_MODEL, &teamv1.ListCostsRequest{}, map[string]int64{"large": leader, "small": 3 * small, "silent": 2 * quiet}},
					{teamv1.CostGroup_COST_GROUP_ACCOUNT, &teamv1.ListCostsRequest{}, map[string]int64{"acme": outer.GetCostMicros(), "other": inner.GetCostMicros() + small}},
					{teamv1.CostGroup_COST_GROUP_DAY, &teamv1.ListCostsRequest{}, map[string]int64{"2026-03-01": outer.GetCostMicros(), "2026-03-02": inner.GetCostMicros() + small}},
					{teamv1.CostGroup_COST_GROUP_MEMBER, &teamv1.ListCostsRequest{Team: "inner"}, map[string]int64{"outer/inner/writer": small, "outer/inner/quiet": quiet, "inner/writer": small, "inner/quiet": quiet}},
					{teamv1.CostGroup_COST_GROUP_TEAM, &teamv1.ListCostsRequest{Team: "outer"}, map[string]int64{"outer": leader, "outer/inner": small + quiet}},
					{teamv1.CostGroup_COST_GROUP_TEAM, &teamv1.ListCostsRequest{Team: "out"}, map[string]int64{}},
					{teamv1.CostGroup_COST_GROUP_DAY, &teamv1.ListCostsRequest{Model: "large"}, map[string]int64{"2026-03-01": leader}},
					{teamv1.CostGroup_COST_GROUP_MODEL, &teamv1.ListCostsRequest{Account: "other"}, map[string]int64{"small": 2 * small, "silent": quiet}},
					{teamv1.CostGroup_COST_GROUP_MODEL, &teamv1.ListCostsRequest{Account: "-"}, map[string]int64{"large": leader, "small": small, "silent": quiet}},
					{teamv1.CostGroup_COST_GROUP_ACCOUNT, &teamv1.ListCostsRequest{Since: timestamppb.New(clock.Now().Add(-time.Hour))}, map[string]int64{"other": inner.GetCostMicros() + small}},
					{teamv1.CostGroup_COST_GROUP_ACCOUNT, &teamv1.ListCostsRequest{Until: timestamppb.New(clock.Now().Add(-time.Hour))}, map[string]int64{"acme": outer.GetCostMicros()}},
				} {
					c.req.GroupBy = c.by
					if got, _ := read(t, s, c.req); cmp.Diff(c.want, got) != "" {
						t.Errorf("%v (-want +got):\n%s", c.req, cmp.Diff(c.want, got))
					}
				}
				_, total := read(t, s, &teamv1.ListCostsRequest{})
				if diff := cmp.Diff(all, total.GetSpent(), protocmp.Transform()); diff != "" {
					t.Errorf("the total (-tasks +costs):\n%s", diff)
				}
				if got := total.GetEstimated().GetCostMicros(); got != 2*quiet || !total.GetSpent().GetEstimated() || total.GetClaimed() != nil {
					t.Errorf("%d micros are estimated, want %d: %v", got, 2*quiet, total)
				}
			})
		}
		bill := int64(0)
		for _, r := range llm.Requests("small", "large") {
			price := map[string]int64{"small": 1, "large": 10}[r.Model]
			bill += 10*price*(r.Billed.PromptTokens-r.Billed.Details.CachedTokens) + price*r.Billed.Details.CachedTokens + 20*price*r.Billed.CompletionTokens
		}
		if got := leader + 3*small; got != bill/10 {
			t.Errorf("models that report their usage have cost %d, and the provider bills %d", got, bill/10)
		}

		t.Run("S-60 a key that may not manage sees its own account", func(t *testing.T) {
			for _, s := range rig.Services(t, target.As("other", "eve")) {
				for _, account := range []string{"", "-", "other"} {
					if got, _ := read(t, s, &teamv1.ListCostsRequest{GroupBy: teamv1.CostGroup_COST_GROUP_ACCOUNT, Account: account}); len(got) != 1 || got["other"] == 0 {
						t.Errorf("account %q: %v", account, got)
					}
				}
				_, err := teamv1.NewMonitorServiceClient(s).ListCosts(t.Context(), &teamv1.ListCostsRequest{Account: "acme"})
				if f := rig.Fault(err); f == nil || f.Reason != agent.ReasonPermissionDenied {
					t.Errorf("%s: another account: %v", s.Binding(), err)
				}
			}
		})
		t.Run("S-60 a wrong request is refused", func(t *testing.T) {
			now := clock.Now()
			for _, s := range admins {
				for says, req := range map[string]*teamv1.ListCostsRequest{
					"since must be before until, which is 2026-03-02T14:00:00Z":   {Since: timestamppb.New(now.Add(time.Minute))},
					"since must be before until, which is 2026-03-01T00:00:00Z":   {Since: timestamppb.New(now), Until: timestamppb.New(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))},
					"groupBy must be one of COST_GROUP_MEMBER, COST_GROUP_TEAM, ": {GroupBy: 99},
					"team is too long": {Team: strings.Repeat("x", 1025)},
				} {
					_, err := teamv1.NewMonitorServiceClient(s).ListCosts(t.Context(), req)
					if f := rig.Fault(err); f == nil || f.Reason != agent.ReasonInvalidRequest || !strings.Contains(f.Message, says) {
						t.Errorf("%s: %v, want %q", s.Binding(), err, says)
					}
				}
			}
			_, err := teamv1.NewMonitorServiceClient(admins[0]).ListCosts(t.Context(), &teamv1.ListCostsRequest{
				Since: timestamppb.New(now), Until: timestamppb.New(now), Model: strings.Repeat("x", 1025),
			})
			f := rig.Fault(err)
			for _, says := range []string{"since must be before until", "model is too long"} {
				if f == nil || !strings.Contains(f.Message, says) {
					t.Errorf("%v does not say %q", err, says)
				}
			}
			for query, says := range map[string]string{"groupBy=FLAVOR": "groupBy", "since=yesterday": "since"} {
				resp, err := target.As("acme", "admin").Do(t.Context(), http.MethodGet, "/team/v1/monitor/costs?"+query, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := resp.Body()
				if resp.Status != http.StatusBadRequest || !strings.Contains(string(body), says) {
					t.Errorf("%s: %d %s", query, resp.Status, body)
				}
			}
		})
	})
}
