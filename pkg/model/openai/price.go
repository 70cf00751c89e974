package openai

import "github.com/agentteams/team-server/pkg/agent"

var _ agent.Pricer = (*Model)(nil)

// Price implements agent.Pricer.
func (m *Model) Price() (input, output int64) {
	return agent.MicrosPerMillion(m.price.Input), agent.MicrosPerMillion(m.price.Output)
}
