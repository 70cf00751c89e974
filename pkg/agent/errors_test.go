package agent_test

import (
	"testing"
	"time"

	"github.com/agentteams/team-server/pkg/agent"
)

// TestP22_SizeRefusalsAreAnswers: an agent that refuses an input because it is too large works; one that says
// when to try again is overloaded.
func TestP22_SizeRefusalsAreAnswers(t *testing.T) {
	refusal := func() *agent.Error {
		return agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources, "refused")
	}
	busy := refusal().With(agent.DetailLimit, "max_queued")
	busy.Retry, busy.RetryAfter = true, time.Second
	for name, c := range map[string]struct {
		err  *agent.Error
		want agent.Judgement
	}{
		"the message is too large":         {refusal().With("max_bytes", "1024"), agent.JudgementAnswered},
		"too many push configurations":     {refusal().With("max_push_configs", "10"), agent.JudgementAnswered},
		"a limit, with a time":             {busy, agent.JudgementFailed},
		"another server, without details":  {refusal(), agent.JudgementFailed},
		"too many requests, of a provider": {agent.Errorf(agent.CodeResourceExhausted, agent.ReasonUnavailable, "429"), agent.JudgementFailed},
	} {
		if got := agent.JudgementOf(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestBinds(t *testing.T) {
	over := func(by string) *agent.Error {
		return agent.Errorf(agent.CodeInternal, agent.ReasonBudgetExceeded, "x").With(agent.DetailSetBy, by)
	}
	for _, c := range []struct {
		err  *agent.Error
		path string
		want bool
	}{
		{nil, "a", false}, {agent.Errorf(0, agent.ReasonTimeout, "x"), "a", false}, {over("a"), "a", true}, {over("a"), "a/b", true},
		{over("a/b"), "a", false}, {over("a"), "ab", false}, {over(agent.SetByCaller), "a/b", true},
	} {
		if got := agent.Binds(c.err, c.path); got != c.want {
			t.Errorf("%v at %s: %v", c.err, c.path, got)
		}
	}
}
