package agent

import (
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

func TestCostOf(t *testing.T) {
	if got := CostOf(&teamv1.Spent{InputTokens: 3, OutputTokens: 4, CostMicros: 5}); got != (Cost{Tokens: 7, Micros: 5}) {
		t.Error(got)
	}
	if got := CostOf(&teamv1.Spent{InputTokens: Unlimited, OutputTokens: Unlimited, CostMicros: -1}); got != (Cost{Tokens: Unlimited, Micros: 0}) {
		t.Error(got)
	}
	usd, none := 0.000001, int64(-5)
	if got := LimitOf(&teamv1.Limits{MaxCost: &usd, MaxTokens: &none}); got != (Cost{Tokens: 0, Micros: 1}) {
		t.Error(got)
	}
	if LimitOf(nil) != NoLimit() {
		t.Error("no limit is one")
	}
	sum := AddSpent(&teamv1.Spent{InputTokens: Unlimited}, &teamv1.Spent{InputTokens: 5, OutputTokens: -7})
	if sum.GetInputTokens() != Unlimited || sum.GetOutputTokens() != 0 {
		t.Error(sum)
	}
}
