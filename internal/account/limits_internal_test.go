package account

import (
	"math"
	"strings"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// TestC_07_TooMuchGranted: the refusal of a grant says what may still be granted, with its unit, and when
// the next day begins, as the refusal of a message does.
func TestC_07_TooMuchGranted(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tokens, usd := int64(20_000), 0.02
	l := LimitsOf(&teamv1.AccountLimits{MaxTokensPerDay: &tokens, MaxCostPerDay: &usd})
	for _, c := range []struct {
		name        string
		left, grant agent.Cost
		want        string
	}{
		{"tokens", agent.Cost{Tokens: 50, Micros: 10}, agent.Cost{Tokens: 70}, `grants 70 tokens, and account "acme" may spend only 50 tokens more on this day, because its max_tokens_per_day is 20000 tokens; the question stays open: grant at most 50 tokens, answer "no", or answer again on the next day, which begins at 2026-03-02T00:00:00Z`},
		{"money", agent.Cost{Tokens: math.MaxInt64, Micros: 10_000}, agent.Cost{Micros: 15_000}, `grants 0.015 USD, and account "acme" may spend only 0.01 USD more on this day, because its max_cost_per_day is 0.02 USD; the question stays open: grant at most 0.01 USD, answer "no", or`},
		{"nothing left", agent.Cost{Tokens: 50}, agent.Cost{Micros: 1}, `may spend nothing more on this day, because its max_cost_per_day is 0.02 USD; the question stays open: answer "no" or answer again on the next day`},
	} {
		e := l.tooMuchGranted("acme", c.left, c.grant, now)
		if !strings.Contains(e.Message, c.want) {
			t.Errorf("%s: %q, want %q", c.name, e.Message, c.want)
		}
		if !e.Retry || e.RetryAfter != 12*time.Hour || e.Details[DetailReset] != "2026-03-02T00:00:00Z" {
			t.Errorf("%s: retry %t after %s, details %v", c.name, e.Retry, e.RetryAfter, e.Details)
		}
	}
}
