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
