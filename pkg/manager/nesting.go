package manager

import (
	"strings"

	"github.com/agentteams/team-server/pkg/agent"
)

// checkNesting returns an error if an agent registered as id would contain itself. It visits only
// the agents below id, because every new cycle contains id. Cycles across servers are bounded at
// run time by the maximum depth (agent.Enter).
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

// nesting searches for target below an agent, depth first.
type nesting struct {
	manager *Manager
	target  string
	path    []string
	seen    map[string]bool
}

// down reports whether target is below c. If so, path leads to it.
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

// into reports whether target is below the agent with the given id.
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
