package monitor

import (
	"slices"
	"time"

	"github.com/agentteams/team-server/pkg/agent"
)

// holders returns the agents in whose tasks an agent may have worked: the agent itself
// first, then the teams that it is a member of, directly or through other teams. Only the
// journals say where it did work; holders limits which ones to read. The result may be as
// old as maxAge.
func (m *Monitor) holders(id string, maxAge time.Duration) []string {
	above := m.members(maxAge)
	list := []string{id}
	for i := 0; i < len(list); i++ {
		for _, team := range above[list[i]] {
			if !slices.Contains(list, team) {
				list = append(list, team)
			}
		}
	}
	return list
}

// members returns, for each agent, the served teams that have it as a member. The result
// may be as old as maxAge.
func (m *Monitor) members(maxAge time.Duration) map[string][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.c.Clock()
	if m.above != nil && now.Sub(m.asked) < maxAge {
		return m.above
	}
	agents := m.h.Agents()
	m.above, m.asked = map[string][]string{}, now
	for _, id := range agents.IDs() {
		a, err := agents.Get(id)
		team, has := a.(agent.Composite)
		if err != nil || !has {
			continue
		}
		for _, member := range team.Members() {
			m.above[member] = append(m.above[member], id)
		}
	}
	return m.above
}
