package serve

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/agent"
)

// TestR_002_29_OfAFile: an agent of a file remembers, also when the file changes,
// unless the file says that it does not.
func TestR_002_29_OfAFile(t *testing.T) {
	llm := fakellm.New(t)
	llm.Answer("n", func(r *fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: fmt.Sprint(len(r.Messages))} })
	text := `version: v1
models: {m: {provider: openai, name: n, api_key: k, base_url: "` + llm.URL + `"}}
agents: {talker: {model: m, instructions: Talk.}}
`
	r := serveLocal(t, define(t, text, nil))
	chat := func(want string) {
		t.Helper()
		run, talk, err := processRequest(t.Context(), t, r, &teamv1.ProcessRequest{AgentId: "talker", ContextId: "c", Message: agent.UserMessage(uuid.NewString(), "hi")})
		if err != nil {
			t.Fatalf("%v\n%s", err, talk)
		}
		says(t, run, want)
	}
	chat("1")
	chat("3")
	if err := r.Agents.Refresh(t.Context(), define(t, strings.Replace(text, "Talk.", "Talk more.", 1), nil)); err != nil {
		t.Fatal(err)
	}
	chat("5")
	if err := r.Agents.Refresh(t.Context(), define(t, strings.Replace(text, "Talk.", "Talk., memory: false", 1), nil)); err != nil {
		t.Fatal(err)
	}
	chat("1")
}
