package agent_test

import (
	"testing"

	"github.com/agentteams/team-server/pkg/agent"
)

// TestJSONKeepsItsDigits: JSON that is taken out of a text has the numbers of the text.
func TestJSONKeepsItsDigits(t *testing.T) {
	for _, text := range []string{`{"id":9007199254740993}`, "```json\n{\"id\":9007199254740993}\n```", `Here it is: {"id":9007199254740993}.`} {
		if got := agent.JSONIn(text); got != `{"id":9007199254740993}` {
			t.Errorf("%s: %s", text, got)
		}
	}
}
