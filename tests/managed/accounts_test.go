package managed

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

// accountsOf are clients of the account service, by binding.
func accountsOf(t *testing.T, at rig.Target) map[string]teamv1.AccountServiceClient {
	all := map[string]teamv1.AccountServiceClient{}
	for _, s := range rig.Services(t, at) {
		all[s.Binding()] = teamv1.NewAccountServiceClient(s)
	}
	return all
}

// perDay are limits of tokens on a day.
func perDay(n int64) *teamv1.AccountLimits { return &teamv1.AccountLimits{MaxTokensPerDay: &n} }

// TestC_07_AccountService sets, reads and lists limits of accounts over each binding, and a run
// obeys them.
func TestC_07_AccountService(t *testing.T) {
	t.Parallel()
	file := strings.Replace(base, "  auth:", "  accounts: {fixed: {max_tokens_in_flight: 7}}\n  auth:", 1)
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		llm.Answer("m", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "well written"} })
		h := open(t, at, file, llm)
		bob, nobody := accountsOf(t, h.As("acme", "bob")), accountsOf(t, rig.Target{GRPC: h.GRPC, HTTP: h.HTTP})
		for binding, ann := range accountsOf(t, h.Target) {
			t.Run(binding, func(t *testing.T) {
				set := func(account string, l *teamv1.AccountLimits) (*teamv1.Account, error) {
					resp, err := ann.SetAccountLimits(t.Context(), &teamv1.SetAccountLimitsRequest{Account: account, Limits: l})
					return resp.GetAccount(), err
				}
				name := "new-" + binding
				a, err := set(name, perDay(5000))
				if err != nil || a.GetLimits().GetMaxTokensPerDay() != 5000 || a.GetChangedBy() != "acme/ann" || a.GetChanged() == nil || a.GetInFile() || a.GetDay() == "" || a.GetResetTime() == nil {
					t.Fatal(a, err)
				}
				if a, err = set(name, &teamv1.AccountLimits{MaxCostInFlight: proto.Float64(0.5), TimeZone: "Asia/Tokyo"}); err != nil || a.GetLimits().MaxTokensPerDay != nil || a.GetLimits().GetTimeZone() != "Asia/Tokyo" {
					t.Error(a, err)
				}
				got, err := ann.GetAccount(t.Context(), &teamv1.GetAccountRequest{Account: name})
				if err != nil || !proto.Equal(got.GetAccount(), a) {
					t.Errorf("%v, %v, want %v", got, err, a)
				}

				list, err := ann.ListAccounts(t.Context(), &teamv1.ListAccountsRequest{PageSize: 1})
				if err != nil || len(list.GetAccounts()) != 1 || list.GetAccounts()[0].GetAccount() != "fixed" || !list.GetAccounts()[0].GetInFile() || list.GetNextPageToken() == "" {
					t.Fatal(list, err)
				}
				list, err = ann.ListAccounts(t.Context(), &teamv1.ListAccountsRequest{PageToken: list.GetNextPageToken()})
				if err != nil || len(list.GetAccounts()) != 1 || list.GetAccounts()[0].GetAccount() != name || list.GetNextPageToken() != "" {
					t.Error(list, err)
				}

				for field, l := range map[string]*teamv1.AccountLimits{
					"limits":               {TimeZone: "UTC"},
					"limits.maxCostPerDay": {MaxCostPerDay: proto.Float64(-1)},
					"limits.timeZone":      {MaxTokensPerDay: proto.Int64(1), TimeZone: "Mars/Olympus"},
				} {
					_, err := set(name, l)
					if f := rig.Fault(err); f == nil || f.Reason != "INVALID_REQUEST" || fmt.Sprint(f.Fields) != "["+field+"]" {
						t.Errorf("%s: %+v", field, f)
					}
				}
				for _, bad := range []string{"fixed", "a b"} {
					_, err := set(bad, perDay(1))
					if f := rig.Fault(err); f == nil || f.Reason != "INVALID_REQUEST" || fmt.Sprint(f.Fields) != "[account]" {
						t.Errorf("%s: %+v", bad, f)
					}
				}

				for what, do := range map[string]func(teamv1.AccountServiceClient) error{
					"set": func(c teamv1.AccountServiceClient) error {
						_, err := c.SetAccountLimits(t.Context(), &teamv1.SetAccountLimitsRequest{Account: name, Limits: perDay(1)})
						return err
					},
					"get": func(c teamv1.AccountServiceClient) error {
						_, err := c.GetAccount(t.Context(), &teamv1.GetAccountRequest{Account: name})
						return err
					},
					"list": func(c teamv1.AccountServiceClient) error {
						_, err := c.ListAccounts(t.Context(), &teamv1.ListAccountsRequest{})
						return err
					},
				} {
					t.Run("C-07 who may "+what, func(t *testing.T) {
						fault(t, do(bob[binding]), "PermissionDenied", "PERMISSION_DENIED")
						fault(t, do(nobody[binding]), "Unauthenticated", "UNAUTHENTICATED")
					})
				}
				mine, err := bob[binding].GetAccount(t.Context(), &teamv1.GetAccountRequest{Account: "-"})
				if err != nil || mine.GetAccount().GetAccount() != "acme" || mine.GetAccount().GetLimits() != nil {
					t.Errorf("bob's own account: %v, %v", mine, err)
				}

				if _, err := set("acme", perDay(5000)); err != nil {
					t.Fatal(err)
				}
				if state := ask(t, h.As("acme", "bob"), "writer"); state != "TASK_STATE_COMPLETED" {
					t.Errorf("a run within the limits is %s", state)
				}
				mine, err = bob[binding].GetAccount(t.Context(), &teamv1.GetAccountRequest{Account: "acme"})
				spent := mine.GetAccount().GetSpent().GetTokens()
				if err != nil || spent == 0 || mine.GetAccount().GetReserved().GetTokens() != 0 || mine.GetAccount().GetInFlight().GetTokens() != 0 {
					t.Errorf("after a run: %v, %v", mine, err)
				}
				if _, err := set("acme", perDay(spent+10)); err != nil {
					t.Fatal(err)
				}
				if state := ask(t, h.As("acme", "bob"), "writer"); state != "TASK_STATE_FAILED" {
					t.Errorf("a run beyond the limits is %s", state)
				}
				if _, err := set("acme", nil); err != nil {
					t.Fatal(err)
				}
				if state := ask(t, h.As("acme", "bob"), "writer"); state != "TASK_STATE_COMPLETED" {
					t.Errorf("a run without limits is %s", state)
				}
				if a, err := set(name, nil); err != nil || a.GetLimits() != nil {
					t.Error(a, err)
				}
			})
		}
	})
}

// TestC_07_LimitsInTheCourseOfADay: limits count what the account has spent on the day before they were
// set, also if it has had others, and limits in the file do so after a start.
func TestC_07_LimitsInTheCourseOfADay(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		llm.Answer("m", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "well written"} })
		h := open(t, at, base, llm)
		run := func() {
			t.Helper()
			if state := ask(t, h.As("acme", "bob"), "writer"); state != "TASK_STATE_COMPLETED" {
				t.Errorf("the run is %s", state)
			}
		}
		refused := func() {
			t.Helper()
			_, err := rig.NewREST(h.As("acme", "bob")).Send(t.Context(), rig.Text("writer", "beyond", "go"))
			if f := rig.Fault(err); f == nil || f.Reason != "ACCOUNT_LIMIT_REACHED" {
				t.Errorf("a message beyond the limit: %v", err)
			}
		}
		set := func(l *teamv1.AccountLimits) {
			t.Helper()
			resp, err := accountsOf(t, h.Target)["grpc"].SetAccountLimits(t.Context(), &teamv1.SetAccountLimitsRequest{Account: "acme", Limits: l})
			if err != nil {
				t.Fatal(err)
			}
			billed := int64(0)
			for _, r := range llm.Requests() {
				billed += r.Billed.PromptTokens + r.Billed.CompletionTokens
			}
			if got := resp.GetAccount().GetSpent().GetTokens(); l != nil && got != billed {
				t.Errorf("%d tokens count as spent, and %d were billed", got, billed)
			}
		}
		run()
		if at.Durable {
			h.stop()
			h = open(t, at, strings.Replace(base, "  auth:", "  accounts: {acme: {max_tokens_per_day: 1}}\n  auth:", 1), llm)
			refused()
			h.stop()
			h = open(t, at, base, llm)
			run()
		}
		set(perDay(5000))
		run()
		set(nil)
		run()
		set(perDay(6000))
		set(perDay(1))
		refused()
	})
}

// ask sends a message to an agent and returns the state of the task.
func ask(t *testing.T, at rig.Target, agent string) string {
	t.Helper()
	resp, err := rig.NewREST(at).Send(t.Context(), rig.Text(agent, fmt.Sprint("ask-", asked.Add(1)), "go"))
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetTask().GetStatus().GetState().String()
}

var asked atomic.Int64

// TestC_07_AnAccountsLastTurn: a coordinator that answers at a limit does so at the limit of its
// account, for which it has reserved from the beginning.
func TestC_07_AnAccountsLastTurn(t *testing.T) {
	t.Parallel()
	const limit = 4500
	file := `version: v1
models: {m: {provider: openai, name: m, base_url: "${LLM}", api_key: k, max_output_tokens: 200}}
agents: {helper: {description: Helps., scripted: {steps: [{text: "help with {{input}}"}]}}}
teams:
  lead: {description: Leads., members: [{agent: helper}], coordinator: {leader: {model: m, instructions: Lead.}, on_limit: FINALIZE}, limits: {max_delegations: 1000}}
server:
  accounts: {acme: {max_tokens_per_day: 4500}}
  auth: {api_keys: [{name: ann, account: acme, sha256: "${ANN}", manage: true, permissions: [READ, CALL, ANSWER, ADMIN]}, {name: bob, account: acme, sha256: "${BOB}"}]}
`
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		llm.Answer("m", func(r *fakellm.Request) fakellm.Turn {
			if len(r.Tools) == 0 {
				return fakellm.Turn{Text: "That is all there is."}
			}
			return fakellm.Turn{Calls: []fakellm.Call{{Name: r.Tools[0], Arguments: fmt.Sprintf(`{"task": "part %d"}`, r.N)}}}
		})
		h := open(t, at, file, llm)
		resp, err := rig.NewREST(h.Target).Send(t.Context(), rig.Text("lead", "last", "go"))
		if err != nil || resp.GetTask().GetStatus().GetState().String() != "TASK_STATE_COMPLETED" {
			t.Fatal(resp, err)
		}
		billed, last := int64(0), llm.Requests()[len(llm.Requests())-1]
		for _, r := range llm.Requests() {
			billed += r.Billed.PromptTokens + r.Billed.CompletionTokens
		}
		a, err := accountsOf(t, h.Target)["grpc"].GetAccount(t.Context(), &teamv1.GetAccountRequest{})
		if spent := a.GetAccount().GetSpent().GetTokens(); err != nil || spent != billed || spent > limit || a.GetAccount().GetInFlight().GetTokens() != 0 {
			t.Errorf("%v, %v; %d were billed", a, err, billed)
		}
		if len(last.Tools) != 0 || len(llm.Requests()) < 2 {
			t.Errorf("%d requests, the last one with tools %v", len(llm.Requests()), last.Tools)
		}
	})
}
