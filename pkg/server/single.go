package server

import (
	"context"
	"fmt"
	"time"

	"github.com/agentteams/team-server/pkg/agent"
)

// infoTime is the timeout for asking an agent for its ID.
const infoTime = 10 * time.Second

// singleAgent is a registry that holds exactly one agent.
type singleAgent struct {
	id    string
	agent agent.Agent
}

// single returns a registry with the agent under the ID of its info.
func single(a agent.Agent) (*singleAgent, error) {
	ctx, cancel := context.WithTimeout(context.Background(), infoTime)
	defer cancel()
	info, err := a.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking the agent for its id: %w", err)
	}
	if !agent.ValidID(info.GetId()) {
		return nil, fmt.Errorf("agent id %q: must match %s and not be a reserved word", info.GetId(), agent.IDPattern)
	}
	return &singleAgent{id: info.GetId(), agent: a}, nil
}

// Get returns the agent, or AGENT_NOT_FOUND.
func (a *singleAgent) Get(id string) (agent.Agent, error) {
	if id != a.id {
		return nil, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "agent %.64q does not exist; the only agent is %q", id, a.id)
	}
	return a.agent, nil
}

// IDs returns the ID of the agent.
func (a *singleAgent) IDs() []string { return []string{a.id} }
