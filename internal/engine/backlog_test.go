package engine_test

import (
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/engine"
)

// limited limits the runs of accounts, and of their principals, by the name of the account.
type limited struct{ of, each map[string]int }

func (limited) Weight(string) int                   { return 1 }
func (l limited) MaxRunning(account string) int     { return l.of[account] }
func (l limited) MaxRunningEach(account string) int { return l.each[account] }
func (limited) LimitsRunning() bool                 { return true }

// TestT_44_RunsThatTheirAccountHoldsBackWaitForNoSlot: only those count that could begin if a replica had a slot.
func TestT_44_RunsThatTheirAccountHoldsBackWaitForNoSlot(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	b := engine.Backlog{
		Due: map[string]engine.Waiting{
			"full/ann": {Count: 50, Oldest: at(1)}, "free/ann": {Count: 7, Oldest: at(5)}, "free/bob": {Count: 2, Oldest: at(4)},
		},
		Claimed: map[string]int64{"full/ann": 1, "full/eve": 1, "free/ann": 3},
	}
	for name, c := range map[string]struct {
		shares engine.Shares
		want   engine.Waiting
	}{
		"no limits":                   {nil, engine.Waiting{Count: 59, Oldest: at(1)}},
		"an account at its limit":     {limited{of: map[string]int{"full": 2}}, engine.Waiting{Count: 9, Oldest: at(4)}},
		"an account beyond its limit": {limited{of: map[string]int{"full": 1}}, engine.Waiting{Count: 9, Oldest: at(4)}},
		"an account below its limit":  {limited{of: map[string]int{"full": 5}}, engine.Waiting{Count: 12, Oldest: at(1)}},
		"a principal at its limit":    {limited{each: map[string]int{"full": 1, "free": 3}}, engine.Waiting{Count: 2, Oldest: at(4)}},
		"a principal and an account":  {limited{of: map[string]int{"free": 4}, each: map[string]int{"full": 1, "free": 5}}, engine.Waiting{Count: 1, Oldest: at(4)}},
		"all at their limits":         {limited{of: map[string]int{"full": 2, "free": 3}}, engine.Waiting{}},
	} {
		if got := b.Claimable(c.shares); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if n := b.Running(); n != 5 {
		t.Errorf("%d run, want 5", n)
	}
}
