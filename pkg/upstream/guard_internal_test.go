package upstream

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentteams/team-server/pkg/agent"
)

// TestGuard_ForgetsTheIdle has ten thousand upstreams called once each: the Guard keeps
// those of the last window, the breakers that are not closed, and those with calls under way.
func TestGuard_ForgetsTheIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Config{})
		call := func(id string) func(agent.Judgement) {
			done, err := g.Allow("acme", id)
			if err != nil {
				t.Fatal(err)
			}
			return done
		}
		for range 20 {
			call("down")(agent.JudgementFailed)
		}
		var slow []func(agent.Judgement)
		for range 20 {
			slow = append(slow, call("slow"))
		}
		for i := range 10_000 {
			id := strconv.Itoa(i)
			g.Called("acme", id)
			_, _ = g.Retry("acme", id)
			call(id)(agent.JudgementAnswered)
			time.Sleep(time.Second) // the clock of the bubble
		}
		if b, r := len(g.breakers), len(g.retries); b > 500 || r > 500 {
			t.Errorf("%d breakers and %d counts are kept of 10,002 upstreams", b, r)
		}
		if g.Open("acme", "down") == "" {
			t.Error("an open breaker was forgotten")
		}
		for _, done := range slow {
			done(agent.JudgementFailed)
		}
		if g.Open("acme", "slow") == "" {
			t.Error("20 calls that were under way and failed do not open the breaker")
		}
		for range 3 {
			_, _ = g.Retry("acme", "9999")
		}
		if wait, err := g.Retry("acme", "9999"); wait == 0 || err != nil {
			t.Error("the repetitions of the last window were forgotten")
		}
	})
}
