package build

import (
	"fmt"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// guards builds the guardrails of an agent or team.
func (b *builder) guards(g *teamv1.Guardrails) (agent.Guards, error) {
	var out agent.Guards
	for _, l := range []struct {
		name string
		from []*teamv1.Guardrail
		to   *[]agent.Guard
	}{
		{"input", g.GetInput(), &out.Input}, {"output", g.GetOutput(), &out.Output},
		{"delegation", g.GetDelegation(), &out.Delegation}, {"result", g.GetResult(), &out.Result},
	} {
		for i, guardrail := range l.from {
			built, err := config.Guardrail(guardrail, b.Definition.Schemas[guardrail.GetSchema()])
			if err != nil {
				return agent.Guards{}, fmt.Errorf("guardrails.%s[%d]: %w", l.name, i, err)
			}
			*l.to = append(*l.to, built)
		}
	}
	return out, nil
}

// output sets the format of the answers of an agent; without a schema any answer is valid.
func (b *builder) output(c *leader.AgentConfig, schema string) error {
	if schema == "" {
		return nil
	}
	s := b.Definition.Schemas[schema]
	if s == nil {
		return fmt.Errorf("output_schema %s is not loaded", schema)
	}
	c.Output, c.Schema = s.Fit, s.JSON()
	return nil
}
