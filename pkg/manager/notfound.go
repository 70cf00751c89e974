package manager

import (
	"strings"

	"github.com/agentteams/team-server/pkg/agent"
)

// notFound returns the error for an unknown id.
func notFound(id string) error {
	id = clip(id)
	return agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "agent %q not found", id).With("agent", id)
}

// clip truncates a text from a caller.
func clip(id string) string {
	const most = 80
	if len(id) <= most {
		return strings.ToValidUTF8(id, "?")
	}
	return strings.ToValidUTF8(id[:most], "") + "…"
}
