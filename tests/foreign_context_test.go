package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
	"github.com/agentteams/team-server/tests/rig/whole"
)

// TestT_4_T_27_ForeignContexts: a conversation belongs to its caller. The context id of another caller
// begins a conversation of one's own, in which nothing of the other one is told, in an agent with memory
// and in a team.
func TestT_4_T_27_ForeignContexts(t *testing.T) {
	t.Parallel()
	const file = `version: v1
models: {m: {provider: openai, name: m, base_url: "${LLM}", api_key: k}}
agents: {talker: {model: m, description: Talks.}}
teams: {led: {members: [{agent: talker}], coordinator: {leader: {model: m}}}}
server:
  auth: {api_keys: [{name: ann, account: acme, sha256: "${ANN}"}, {name: bob, account: acme, sha256: "${BOB}"}, {name: eve, account: other, sha256: "${EVE}"}]}
`
	const secret = "THE CODE IS 4711"
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		llm.Answer("m", func(r *fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "noted: " + r.Last()} })
		h := whole.Open(t, at, file, llm)
		for _, agent := range []string{"talker", "led"} {
			say := func(who rig.Target, id, text string) {
				t.Helper()
				req := rig.Text(agent, id, text)
				req.Message.ContextId = "shared-" + agent
				if _, err := rig.NewREST(who).Send(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
			say(h.Target, "a1-"+agent, secret)
			before := len(llm.Requests("m"))
			for i, who := range []rig.Target{h.As("acme", "bob"), h.As("other", "eve")} {
				say(who, fmt.Sprint("b", i, agent), "what is the code?")
			}
			for _, r := range llm.Requests("m")[before:] {
				if strings.Contains(string(r.Body), "4711") {
					t.Errorf("%s: another caller's model is told %s", agent, r.Body)
				}
			}
			say(h.Target, "a2-"+agent, "and now?")
			all := llm.Requests("m")
			if last := all[len(all)-1]; !strings.Contains(string(last.Body), "4711") || strings.Contains(string(last.Body), "what is the code?") {
				t.Errorf("%s: the caller's own conversation is %s", agent, last.Body)
			}
		}
	})
}
