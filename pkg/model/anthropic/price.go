package anthropic

import "github.com/agentteams/team-server/pkg/agent"

var (
	_ agent.Pricer        = (*Model)(nil)
	_ agent.OutputLimiter = (*Model)(nil)
)

// Price implements agent.Pricer.
func (m *Model) Price() (input, output int64) { return m.config.Price.PerMillion() }

// MaxOutput implements agent.OutputLimiter.
func (m *Model) MaxOutput() int64 { return m.config.MaxOutput }
