package tests

import (
	"fmt"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// TestA_15_OneIDForTwoAgents sends a message with the same id to two agents: each has a
// task of its own, and a repeat leads to the task of the same agent.
func TestA_15_OneIDForTwoAgents(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		s, _ := place.Open(t)
		target := rig.Serve(t, server.Config{Agents: rig.Manager(t, says("one"), says("two")), Store: s})
		for i, c := range rig.Clients(t, target) {
			tasks := map[string]string{}
			for range 2 {
				for _, agent := range []string{"one", "two"} {
					resp, err := c.Send(t.Context(), rig.Text(agent, fmt.Sprint("m", i), "hello"))
					if err != nil {
						t.Fatalf("%s to %s: %v", c.Binding(), agent, err)
					}
					id := resp.GetTask().GetId()
					if before := tasks[agent]; before != "" && before != id {
						t.Errorf("%s to %s: tasks %s and %s for one message", c.Binding(), agent, before, id)
					}
					tasks[agent] = id
					wantText(t, resp.GetTask(), agent+"(hello)")
				}
			}
			if tasks["one"] == tasks["two"] {
				t.Errorf("%s: one task %s for two agents", c.Binding(), tasks["one"])
			}
		}
	})
}

// TestA_15_MessageIDsForgotten: where message ids are not remembered a repeated message
// is a new one, with other content too; an answer still counts once.
func TestA_15_MessageIDsForgotten(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		s, _ := place.Open(t)
		m := defined(t, `version: v1
agents:
  echo: {scripted: {steps: [{text: "{{input}}"}]}}
teams:
  asks:
    workflow:
      steps:
        - {id: ask, human: {question: "Really?"}}
        - {id: hold, after: [ask], human: {question: "Anything else?"}}
`, nil)
		target := rig.Serve(t, server.Config{Agents: m, Store: s, Settings: &teamv1.ServerSettings{Deduplicate: "off"}})
		tasks := map[string]bool{}
		for _, c := range rig.Clients(t, target) {
			for _, text := range []string{"hello", "hello", "other"} {
				resp, err := c.Send(t.Context(), rig.Text("asks", "m", text))
				if err != nil {
					t.Fatalf("%s: %v", c.Binding(), err)
				}
				tasks[resp.GetTask().GetId()] = true
			}
		}
		if len(tasks) != 9 {
			t.Errorf("%d tasks for 9 messages", len(tasks))
		}
		for id := range tasks {
			first, second := rig.Text("asks", "a", "yes"), rig.Text("asks", "a", "no")
			first.Message.TaskId, second.Message.TaskId = id, id
			for _, answer := range []*a2av1.SendMessageRequest{first, second} {
				if _, err := rig.Clients(t, target)[0].Send(t.Context(), answer); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
