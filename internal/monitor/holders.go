package monitor

import (
	"slices"
	"time"

	"github.com/agentteams/team-server/pkg/agent"
)

// holders are the agents in whose tasks one may work: itself first, then the teams that
// have it as a member, and those that have one of these. Which did in a task is on record;
// this says only where to look. It may be as it was so long ago.
func (m *Monitor) holders(id string, old time.Duration) []string {
	above := m.members(old)
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

// members are the teams that are served and have an agent as a member, by the agent.
func (m *Monitor) members(old time.Duration) map[string][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.c.Clock()
	if m.above != nil && now.Sub(m.asked) < old {
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
