package manager

import (
	"fmt"
	"strings"

	"github.com/agentteams/team-server/pkg/agent"
)

// maxSuggest is the maximum number of agents among which a similar id is searched for.
const maxSuggest = 1000

// maxNamed is the maximum number of agents that an error lists.
const maxNamed = 20

// notFound returns the error for an unknown id. It names the most similar agent, or all agents if
// there are few.
func (m *Manager) notFound(id string) error {
	var hint string
	switch near, n := m.nearest(id), m.Len(); {
	case near != "":
		hint = fmt.Sprintf("did you mean %q?", near)
	case n == 0:
		hint = "this server has no agents"
	case n <= maxNamed:
		hint = "known agents: " + strings.Join(m.IDs(), ", ")
	default:
		hint = fmt.Sprintf("GET /team/v1/registry/agents lists the %d agents of this server", n)
	}
	return agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "agent %q not found; %s", clip(id), hint).With("agent", clip(id))
}

// clip truncates a text from a caller.
func clip(id string) string {
	const most = 80
	if len(id) <= most {
		return strings.ToValidUTF8(id, "?")
	}
	return strings.ToValidUTF8(id[:most], "") + "…"
}

func (m *Manager) nearest(id string) string {
	if id == "" || len(id) > 63 || m.Len() > maxSuggest {
		return ""
	}
	best, distance := "", 3
	for _, known := range m.IDs() {
		if d := editDistance(id, known); d < distance && d < len(known) {
			best, distance = known, d
		}
	}
	return best
}

// editDistance returns the number of bytes to insert, delete or change.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
