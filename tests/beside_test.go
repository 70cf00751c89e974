package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/tests/rig"
)

// TestBesideACall: what a model sends beside a tool call is in the next request of the run, also after a
// restart. Users do not see it, and the next task of the conversation does not have it.
func TestBesideACall(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		const thought = "I should look it up."
		llm, gate := fakellm.New(t), fakellm.NewGate()
		llm.Script("m", fakellm.Turn{Reasoning: thought, Calls: []fakellm.Call{{Name: "find_order", Arguments: "{}"}}})
		if at.Durable {
			llm.Script("m", fakellm.Turn{Text: "lost", Gate: gate})
		}
		llm.Script("m", fakellm.Turn{Text: "done", Forever: true})
		a, err := leader.NewAgent(leader.AgentConfig{ID: "talker", Model: modelOf(t, llm, "m"), Memory: true, Tools: []agent.Tool{orders{}}})
		if err != nil {
			t.Fatal(err)
		}
		l := live(t, at, rig.Manager(t, a), llm)
		id := l.sendNow(t, "talker", "one", "Where is my order?").GetId()
		if at.Durable {
			if err := gate.Wait(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			l.kill(at)
			l = live(t, at, rig.Manager(t, a), llm)
		}
		task := l.until(t, id, ended)
		wantText(t, task, "done")
		say(t, l.clients[0], "talker", task.GetContextId(), "And now?")
		rs := llm.Requests("m")
		for i, r := range rs[1:] {
			if got, want := strings.Contains(string(r.Body), `"reasoning_content":"`+thought+`"`), i < len(rs)-2; got != want {
				t.Errorf("request %d of %d has the reasoning: %v, want %v", i+2, len(rs), got, want)
			}
		}
		if strings.Contains(fmt.Sprint(task), thought) {
			t.Errorf("the task shows the reasoning: %v", task)
		}
	})
}
