package tests

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/swarm"
	"github.com/agentteams/team-server/tests/rig"
)

// orders is a tool that finds an order.
type orders struct{}

func (orders) Spec() agent.ToolSpec { return agent.ToolSpec{Name: "find_order"} }
func (orders) Call(context.Context, json.RawMessage, string) (*teamv1.ToolResult, error) {
	return &teamv1.ToolResult{Text: "order 4711, paid", IsError: true}, nil
}

// TestConversation_ToolCalls: the next task of a conversation knows what the tools have answered in the
// last one, of an agent and of the members of a swarm, in each store.
func TestConversation_ToolCalls(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		llm.Answer("m", func(r *fakellm.Request) fakellm.Turn {
			switch {
			case strings.Contains(r.Last(), "refund"):
				return fakellm.Turn{Text: "refunded"}
			case r.Last() != "order 4711, paid":
				return fakellm.Turn{Calls: []fakellm.Call{{ID: "c1", Name: "find_order", Arguments: `{"of":"ann"}`}}}
			}
			return fakellm.Turn{Text: "It is paid."}
		})
		clerk := func(id string, memory bool) agent.Agent {
			a, err := leader.NewAgent(leader.AgentConfig{ID: id, Model: modelOf(t, llm, "m"), Memory: memory, Tools: []agent.Tool{orders{}}})
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		m := rig.Manager(t, clerk("clerk", true), clerk("member", false))
		ms := []team.Member{{Agent: "member"}}
		scheduler, err := swarm.New(swarm.Config{Entry: "member", Members: ms})
		if err != nil {
			t.Fatal(err)
		}
		shop, err := team.New(team.Config{ID: "shop", Scheduler: scheduler, Members: ms, Registry: m, Memory: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Register("shop", shop); err != nil {
			t.Fatal(err)
		}
		l := live(t, at, m, llm)
		for of, by := range map[string]string{"clerk": "", "shop": "member called "} {
			say(t, l.clients[0], of, "c-"+of, "where is the order of ann?")
			say(t, l.clients[0], of, "c-"+of, "refund that order")
			want := "- " + by + `find_order {"of":"ann"}: failed: order 4711, paid`
			if said := strings.Join(prompt(t, llm, "m"), "\n"); !strings.Contains(said, want) {
				t.Errorf("%s: the model was asked %s; it lacks %s", of, said, want)
			}
		}
	})
}
