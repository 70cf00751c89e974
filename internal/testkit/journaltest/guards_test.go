package journaltest

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/guard"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// ware is a middleware whose looks are counted.
type ware struct {
	cast *cast
	name string
	do   func(text string) (agent.Verdict, error)
}

func (w ware) Name() string { return w.name }
func (w ware) Check(_ context.Context, p *agent.Passing) (agent.Verdict, error) {
	w.cast.calls.Add(1)
	return w.do(agent.Text(p.Message))
}

func (c *cast) tags(name string) agent.Guard {
	return agent.Guard{Middleware: ware{c, name, func(text string) (agent.Verdict, error) {
		return agent.Verdict{Message: agent.NewMessage(text + "+" + name)}, nil
	}}}
}

func (c *cast) passes(name string, v agent.Verdict, err error) agent.Guard {
	return agent.Guard{Middleware: ware{c, name, func(string) (agent.Verdict, error) { return v, err }}}
}

// guarded are runs whose messages are looked at.
func guarded() []scenario {
	broken := agent.Errorf(0, agent.ReasonUnavailable, "the dictionary is gone")
	return []scenario{
		{name: "guarded", anywhere: true, agents: func(c *cast) {
			c.add(says("a", func(text string) string { return "a(" + text + ")" }))
			w, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "1", Member: "a"}, {ID: "2", Member: "a", After: []string{"1"}}}})
			c.teamOf(team.Config{ID: "root", Scheduler: w, Guards: agent.Guards{
				Input: []agent.Guard{c.tags("in"), c.passes("broken", agent.Verdict{}, broken)}, Output: []agent.Guard{c.tags("out")},
				Delegation: []agent.Guard{c.tags("given")}, Result: []agent.Guard{c.passes("look", agent.Verdict{}, nil), c.tags("result")},
			}}, err, "a")
		}},
		{name: "guarded_input_stopped", anywhere: true, agents: func(c *cast) {
			c.add(says("a", func(text string) string { return text }))
			w, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "1", Member: "a"}}})
			c.teamOf(team.Config{ID: "root", Scheduler: w, Guards: agent.Guards{Input: []agent.Guard{c.passes("polite", agent.Verdict{Block: "say please"}, nil)}}}, err, "a")
		}},
		{name: "guarded_result_stopped", anywhere: true, agents: func(c *cast) {
			c.add(says("a", func(text string) string { return text }))
			w, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "1", Member: "a"}}})
			c.teamOf(team.Config{ID: "root", Scheduler: w, Guards: agent.Guards{Result: []agent.Guard{c.passes("clean", agent.Verdict{Block: "it swears"}, nil)}}}, err, "a")
		}},
		{name: "output_put_back", anywhere: true, agents: func(c *cast) {
			s, err := guard.ParseSchema("s.json", []byte(`{"type": "object", "required": ["score"]}`))
			c.must(err)
			a, err := leader.NewAgent(leader.AgentConfig{ID: "root", Output: s.Fit, Model: model{c, func(req *agent.ModelRequest) (*teamv1.Turn, error) {
				if len(req.Messages) > 1 {
					return &teamv1.Turn{Text: `{"score": 7}`}, nil
				}
				return &teamv1.Turn{Text: "seven"}, nil
			}}})
			c.must(err)
			c.must(c.Register("root", a))
		}},
	}
}
