package manager

import (
	"strings"

	"github.com/agentteams/team-server/pkg/agent"
)

// checkNesting refuses an agent that, registered as id, would contain itself.
// Only what hangs below id is walked: every new circle passes through it.
// Circles across servers are bounded by depth when they are asked (agent.Enter).
func (m *Manager) checkNesting(id string, a agent.Agent) error {
	root, ok := a.(agent.Composite)
	if !ok {
		return nil
	}
	walk := nesting{manager: m, target: id, path: []string{id}}
	if !walk.down(root) {
		return nil
	}
	path := strings.Join(walk.path, " -> ")
	return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig,
		"teams form a cycle: %s; break it by removing one member", path).With("path", path)
}

// nesting looks for target below an agent, depth first.
type nesting struct {
	manager *Manager
	target  string
	path    []string
	seen    map[string]bool
}

// down reports whether target is below c; path then ends with it.
func (n *nesting) down(c agent.Composite) bool {
	for _, id := range c.Members() {
		n.path = append(n.path, id)
		if id == n.target || n.into(id) {
			return true
		}
		n.path = n.path[:len(n.path)-1]
	}
	return false
}

func (n *nesting) into(id string) bool {
	e, ok := n.manager.lookup(id)
	if !ok {
		return false
	}
	c, ok := e.agent.(agent.Composite)
	if !ok || n.seen[id] {
		return false
	}
	if n.seen == nil {
		n.seen = map[string]bool{}
	}
	n.seen[id] = true
	return n.down(c)
}
