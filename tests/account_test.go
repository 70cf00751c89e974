package tests

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/testkit/storetest"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/remote"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// wantUse wants what an account has spent and holds for a day, in tokens.
func wantUse(t *testing.T, s store.Store, day string, spent, held int64) {
	t.Helper()
	u, err := s.Use(t.Context(), "acme", day)
	if err != nil || u.Spent.Tokens != spent || u.Held.Tokens != held || u.InFlight.Tokens != held {
		t.Errorf("on %s the account uses %+v, %v, want %d spent and %d held", day, u, err, spent, held)
	}
}

// TestC_07_AnAccountsDay: when the day of an account is used up, a message is refused at once over
// every binding, until the next day of its time zone begins. Other accounts and messages that were
// sent before are not affected, and the refused message can be sent again.
func TestC_07_AnAccountsDay(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		clock := storetest.NewClock() // 1 March 2026, 12:00 UTC
		s := onClock(t, at, clock)
		m := &meteredModel{spent: &teamv1.Spent{InputTokens: 900, OutputTokens: 2100, CostMicros: 3000}}
		reg := rig.Manager(t, metered(t, "writer", m, nil))
		chain(t, reg, "desk", "writer")
		target := rig.Serve(t, server.Config{
			Agents:   reg,
			Store:    s,
			Settings: &teamv1.ServerSettings{Auth: rig.Auth(rig.Key("acme", "ann"), rig.Key("acme", "bob"), rig.Key("other", "eve")), Accounts: map[string]*teamv1.AccountLimits{"acme": {MaxTokensPerDay: proto.Int64(3000), TimeZone: "Europe/Berlin"}}},
		})
		first := rig.Text("desk", "first", "go")
		ann := rig.NewREST(target.As("acme", "ann"))
		sent, err := ann.Send(t.Context(), first)
		if err != nil || sent.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			t.Fatal(sent, err)
		}
		wantUse(t, s, "2026-03-01", 3000, 0)
		if allowed, _ := m.seen(); len(allowed) != 1 || allowed[0] <= 0 || allowed[0] > 3000 {
			t.Errorf("the model was allowed %v output tokens, and the account 3000", allowed)
		}

		rig.Each(t, target.As("acme", "bob"), func(t *testing.T, c rig.Client) {
			req := rig.Text("desk", "more-"+c.Binding(), "go")
			_, err := c.Send(t.Context(), req)
			f := rig.Fault(err)
			if f == nil || f.Code != "ResourceExhausted" || f.Reason != agent.ReasonAccountLimit || f.Domain != wire.DomainTeam || f.Retry != 11*time.Hour ||
				f.Details[agent.DetailLimit] != "max_tokens_per_day" || f.Details[agent.DetailValue] != "3000" || f.Details[agent.DetailSetBy] != agent.SetByAccount ||
				f.Details[agent.DetailAccount] != "acme" || f.Details[account.DetailReset] != "2026-03-01T23:00:00Z" {
				t.Errorf("%+v", f)
			}
			if want := map[string]int{"rest": 429}[c.Binding()]; want > 0 && f.HTTP != want {
				t.Errorf("HTTP %d", f.HTTP)
			}
			if c.Binding() == "jsonrpc" && f.RPC != -32020 {
				t.Errorf("JSON-RPC code %d", f.RPC)
			}
			for _, err := range c.Stream(t.Context(), req) {
				if f := rig.Fault(err); f == nil || f.Reason != agent.ReasonAccountLimit {
					t.Errorf("a stream: %+v", f)
				}
			}
		})
		for path, body := range map[string]string{
			"/desk/message:send": `{"message": {"messageId": "h", "role": "ROLE_USER", "parts": [{"text": "go"}]}}`,
			"/desk/rpc":          `{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": {"messageId": "h", "role": "ROLE_USER", "parts": [{"text": "go"}]}}}`,
		} {
			resp, err := target.As("acme", "ann").Do(t.Context(), http.MethodPost, path, []byte(body), map[string]string{"Content-Type": "application/json"})
			if err != nil {
				t.Fatal(err)
			}
			text, err := resp.Body()
			if got := resp.Header.Get("Retry-After"); err != nil || got != "39600" {
				t.Errorf("%s: status %d, Retry-After %q, %s", path, resp.Status, got, text)
			}
		}

		if again, err := ann.Send(t.Context(), first); err != nil || again.GetTask().GetId() != sent.GetTask().GetId() {
			t.Errorf("the first message again: %v, %v", again, err)
		}
		if resp, err := rig.NewREST(target.As("other", "eve")).Send(t.Context(), rig.Text("desk", "eve", "go")); err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			t.Errorf("another account: %v, %v", resp, err)
		}
		clock.Move(11 * time.Hour)
		bob := rig.NewREST(target.As("acme", "bob"))
		if resp, err := bob.Send(t.Context(), rig.Text("desk", "more-rest", "go")); err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			t.Errorf("on the next day: %v, %v", resp, err)
		}
		wantUse(t, s, "2026-03-02", 3000, 0)
	})
}

// TestC_07_AnAccountsStep: a step that the account does not cover is refused before the model is
// called, also in a nested team, and the run fails with the reason, which a coordinator may turn into
// an answer.
func TestC_07_AnAccountsStep(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		s, _ := at.Open(t)
		m := &meteredModel{spent: &teamv1.Spent{InputTokens: 30, OutputTokens: 20, CostMicros: 50}}
		reg := rig.Manager(t, metered(t, "writer", m, nil))
		chain(t, reg, "inner", "writer")
		chain(t, reg, "outer", "inner")
		target := rig.Serve(t, server.Config{Agents: reg, Store: s, Settings: &teamv1.ServerSettings{Accounts: map[string]*teamv1.AccountLimits{"local": {MaxTokensInFlight: proto.Int64(20)}}}})
		for _, name := range []string{"writer", "inner", "outer"} {
			all := events(t, target, name, name)
			end := all[len(all)-1].GetEnded()
			e := end.GetError()
			if e.GetReason() != agent.ReasonAccountLimit || e.GetCode() != 8 || e.GetDetails()["limit"] != "max_tokens_in_flight" || e.GetDetails()["value"] != "20" ||
				e.GetDetails()[account.DetailReset] != "" || end.GetOutcome() != teamv1.Outcome_OUTCOME_FAILED {
				t.Errorf("%s: %v", name, end)
			}
			if allowed, _ := m.seen(); len(allowed) != 0 {
				t.Errorf("%s: the model was called", name)
			}
			rejected := 0
			for _, ev := range all {
				if ev.GetEnded().GetOutcome() == teamv1.Outcome_OUTCOME_REJECTED {
					rejected++
				}
			}
			if rejected != 1 {
				t.Errorf("%s: %d steps were rejected", name, rejected)
			}
		}
	})
}

// TestC_07_AnAccountsPeer: an agent on another server gets a part of what the account has left, is
// told so, and what it reports is booked, whether it is a member or the agent of the task.
func TestC_07_AnAccountsPeer(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		s, _ := at.Open(t)
		began := s.Now().UTC().Format(time.DateOnly)
		m := &meteredModel{spent: &teamv1.Spent{InputTokens: 40, OutputTokens: 60, CostMicros: 100}}
		far := rig.Manager(t, metered(t, "writer", m, nil))
		chain(t, far, "newsroom", "writer")
		b := rig.Serve(t, server.Config{Agents: far})
		near := rig.Manager(t, overA2A(t, "far", b, "newsroom", remote.BindingGRPC), overService(t, "near", b, "newsroom"))
		chain(t, near, "desk", "far")
		target := rig.Serve(t, server.Config{Agents: near, Store: s, Settings: &teamv1.ServerSettings{Auth: rig.Auth(rig.Key("acme", "ann")), Accounts: map[string]*teamv1.AccountLimits{"acme": {MaxTokensPerDay: proto.Int64(12_000)}}}})
		ann := target.As("acme", "ann")
		for i, name := range []string{"desk", "far", "near"} {
			resp, err := rig.NewREST(ann).Send(t.Context(), rig.Text(name, name, "go"))
			if run := a2a.RunOf(resp.GetTask().GetMetadata()); err != nil || run.GetSpent().GetOutputTokens() != 60 || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
				t.Errorf("%s: %v, %v", name, resp, err)
			}
			if now := s.Now().UTC().Format(time.DateOnly); now == began { // not at midnight
				wantUse(t, s, now, int64(i+1)*100, 0)
			}
		}
		allowed, _ := m.seen()
		if len(allowed) != 3 {
			t.Fatalf("%d calls", len(allowed))
		}
		for _, n := range allowed {
			if n <= 0 || n >= 3000 { // a quarter of 12,000, less the prompt
				t.Errorf("the model on the other server was allowed %v, of a quarter of what the account had left", allowed)
			}
		}
	})
}

// TestC_07_AccountsWithoutLimits: nothing is counted for an account without limits.
func TestC_07_AccountsWithoutLimits(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		s, _ := at.Open(t)
		ledger := &countedLedger{Store: s}
		m := &meteredModel{spent: &teamv1.Spent{InputTokens: 30, OutputTokens: 20, CostMicros: 50}}
		reg := rig.Manager(t, metered(t, "writer", m, nil))
		target := rig.Serve(t, server.Config{Agents: reg, Store: ledger, Settings: &teamv1.ServerSettings{Accounts: map[string]*teamv1.AccountLimits{"acme": {MaxTokensPerDay: proto.Int64(20)}}}})
		if all := events(t, target, "writer", "go"); all[len(all)-1].GetEnded().GetOutcome() != teamv1.Outcome_OUTCOME_SUCCEEDED {
			t.Error(all[len(all)-1])
		}
		if got := strings.Join(ledger.seen(), " "); got != "" {
			t.Errorf("the ledger was asked: %s", got)
		}
	})
}

// countedLedger notes the calls of the ledger that concern an account.
type countedLedger struct {
	store.Store

	mu    sync.Mutex
	calls []string // guarded by mu
}

func (c *countedLedger) note(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, call)
}

func (c *countedLedger) seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

func (c *countedLedger) OpenUse(ctx context.Context, r account.Run, day string, before agent.Cost) ([]account.Row, error) {
	c.note("OpenUse")
	return c.Store.OpenUse(ctx, r, day, before)
}

func (c *countedLedger) BookUse(ctx context.Context, r account.Run, b account.Booking) (account.Booked, error) {
	c.note("BookUse")
	return c.Store.BookUse(ctx, r, b)
}

func (c *countedLedger) Use(ctx context.Context, name, day string) (account.Use, error) {
	c.note("Use")
	return c.Store.Use(ctx, name, day)
}
