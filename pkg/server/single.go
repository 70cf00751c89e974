package server

import (
	"context"
	"fmt"
	"time"

	"github.com/agentteams/team-server/pkg/agent"
)

// infoTime bounds how long an agent is asked for its id.
const infoTime = 10 * time.Second

// alone is one agent as all there is.
type alone struct {
	id    string
	agent agent.Agent
}

// single returns the agent under the id of its info.
func single(a agent.Agent) (*alone, error) {
	ctx, cancel := context.WithTimeout(context.Background(), infoTime)
	defer cancel()
	info, err := a.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking the agent for its id: %w", err)
	}
	if !agent.ValidID(info.GetId()) {
		return nil, fmt.Errorf("agent id %q: must match %s and be no reserved word", info.GetId(), agent.IDPattern)
	}
	return &alone{id: info.GetId(), agent: a}, nil
}

// Get returns the agent, or AGENT_NOT_FOUND.
func (a *alone) Get(id string) (agent.Agent, error) {
	if id != a.id {
		return nil, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "there is no agent %.64q; there is %q", id, a.id)
	}
	return a.agent, nil
}

// IDs returns the one id.
func (a *alone) IDs() []string { return []string{a.id} }
