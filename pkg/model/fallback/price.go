package fallback

import "github.com/agentteams/team-server/pkg/agent"

var (
	_ agent.Pricer        = (*Model)(nil)
	_ agent.OutputLimiter = (*Model)(nil)
)

// Price implements agent.Pricer: the highest of the models'.
func (m *Model) Price() (input, output int64) {
	for _, next := range m.models {
		p := agent.PriceOf(next)
		input, output = max(input, p.Input), max(output, p.Output)
	}
	return input, output
}

// MaxOutput implements agent.OutputLimiter: the highest of the models', unknown
// where one is.
func (m *Model) MaxOutput() int64 {
	most := int64(0)
	for _, next := range m.models {
		l, ok := next.(agent.OutputLimiter)
		if !ok || l.MaxOutput() == 0 {
			return 0
		}
		most = max(most, l.MaxOutput())
	}
	return most
}
