package manage

import (
	"context"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/catalog"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// RegisterAgent implements RegistryService.
func (m *Manager) RegisterAgent(ctx context.Context, req *teamv1.RegisterAgentRequest) (*teamv1.RegisterAgentResponse, error) {
	who, err := manager(ctx)
	if err != nil {
		return nil, err
	}
	d, err := agentDocument(req.GetAgentId(), req.GetConfig())
	if err != nil {
		return nil, err
	}
	err = m.change(ctx, req.GetValidateOnly(), func(catalog.Snapshot) (catalog.Change, error) { return m.put(d, who, nil), nil })
	if err != nil {
		return nil, err
	}
	if req.GetValidateOnly() {
		return &teamv1.RegisterAgentResponse{Agent: &teamv1.RegisteredAgent{Id: d.id, Origin: teamv1.Origin_ORIGIN_API}}, nil
	}
	a, err := m.agent(ctx, d.id)
	return &teamv1.RegisterAgentResponse{Agent: a}, err
}

// UpdateAgent implements RegistryService.
func (m *Manager) UpdateAgent(ctx context.Context, req *teamv1.UpdateAgentRequest) (*teamv1.UpdateAgentResponse, error) {
	who, err := manager(ctx)
	if err != nil {
		return nil, err
	}
	d, err := agentDocument(req.GetAgentId(), req.GetConfig())
	if err != nil {
		return nil, err
	}
	err = m.change(ctx, req.GetValidateOnly(), func(snap catalog.Snapshot) (catalog.Change, error) {
		old, err := m.entry(snap, d.id, req.GetEtag(), m.noAgent)
		return m.put(d, who, old), err
	})
	if err != nil {
		return nil, err
	}
	a, err := m.agent(ctx, d.id)
	return &teamv1.UpdateAgentResponse{Agent: a}, err
}

// UnregisterAgent implements RegistryService.
func (m *Manager) UnregisterAgent(ctx context.Context, req *teamv1.UnregisterAgentRequest) (*teamv1.UnregisterAgentResponse, error) {
	if _, err := manager(ctx); err != nil {
		return nil, err
	}
	err := m.change(ctx, false, func(snap catalog.Snapshot) (catalog.Change, error) {
		_, err := m.entry(snap, req.GetAgentId(), req.GetEtag(), m.noAgent)
		return catalog.Change{Delete: []string{req.GetAgentId()}}, err
	})
	return &teamv1.UnregisterAgentResponse{}, err
}

// GetAgent implements RegistryService.
func (m *Manager) GetAgent(ctx context.Context, req *teamv1.GetAgentRequest) (*teamv1.GetAgentResponse, error) {
	a, err := m.agent(ctx, req.GetAgentId())
	return &teamv1.GetAgentResponse{Agent: a}, err
}

// ListAgents implements RegistryService.
func (m *Manager) ListAgents(ctx context.Context, req *teamv1.ListAgentsRequest) (*teamv1.ListAgentsResponse, error) {
	def := m.c.Live.Definition()
	var ids []string
	for id := range def.Used {
		if req.GetKind() == "" || req.GetKind() == kindOf(def, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if req.GetSkill() != "" {
		ids = slices.DeleteFunc(ids, func(id string) bool { return !slices.Contains(m.info(ctx, id).GetCapabilities(), req.GetSkill()) })
	}
	ids, next, err := page(ids, req.GetPageSize(), req.GetPageToken())
	if err != nil {
		return nil, err
	}
	resp := &teamv1.ListAgentsResponse{NextPageToken: next}
	for _, id := range ids {
		a, err := m.agent(ctx, id)
		if err != nil {
			continue // it has been deleted meanwhile
		}
		resp.Agents = append(resp.Agents, a)
	}
	return resp, nil
}

// agentDocument is the document of an agent.
func agentDocument(id string, c *teamv1.AgentConfig) (document, error) {
	if id == "" {
		return document{}, a2a.Invalid(a2a.Violation{Field: "agentId", Description: "is required"})
	}
	if c == nil {
		return document{}, a2a.Invalid(a2a.Violation{Field: "config", Description: "is required"})
	}
	return rendered(id, &teamv1.ServerConfig{Agents: map[string]*teamv1.AgentConfig{id: c}})
}

// noAgent is the error for an agent that cannot be changed here.
func (m *Manager) noAgent(id string) error {
	def := m.c.Live.Definition()
	switch with := def.Addition(id); {
	case !def.Used[id] && def.Server.GetAgents()[id] == nil:
		return agentNotFound(id)
	case def.Server.GetTeams()[id] != nil:
		return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig, "%q is a team; change it as a team", id)
	case with != "":
		return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig, "agent %q came with team %q; change that", id, with)
	}
	return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig, "agent %q is defined in the file of the server; change it there", id)
}

func agentNotFound(id string) error {
	return agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "there is no agent %q", id)
}

// agent is an agent or team as it is served.
func (m *Manager) agent(ctx context.Context, id string) (*teamv1.RegisteredAgent, error) {
	def := m.c.Live.Definition()
	if !def.Used[id] {
		return nil, agentNotFound(id)
	}
	a := &teamv1.RegisteredAgent{Id: id, Kind: kindOf(def, id), Origin: teamv1.Origin_ORIGIN_FILE, Info: m.info(ctx, id), Health: m.health(ctx, id)}
	if with := def.Addition(id); with != "" {
		a.Origin = teamv1.Origin_ORIGIN_API
		m.mu.Lock()
		e := m.find(with)
		m.mu.Unlock()
		a.Changed, a.ChangedBy = timestamppb.New(e.Changed), e.ChangedBy
		if with == id {
			a.Etag = etagOf(e)
		}
	}
	return a, nil
}

// info is what an agent says of itself; nil where it does not.
func (m *Manager) info(ctx context.Context, id string) *teamv1.AgentInfo {
	a, err := m.c.Live.Get(id)
	if err != nil {
		return nil
	}
	info, err := a.Info(ctx)
	if err != nil {
		return nil
	}
	return info
}

// kindOf is the kind of an agent, as the file has it.
func kindOf(def *config.Config, id string) string {
	a := def.Server.GetAgents()[id]
	switch {
	case a == nil:
		return "team"
	case a.GetScripted() != nil:
		return "scripted"
	case a.GetGrpc() != nil:
		return "grpc"
	case a.GetA2A() != nil:
		return "a2a"
	case a.GetConformance() != nil:
		return "conformance"
	}
	return "model"
}
