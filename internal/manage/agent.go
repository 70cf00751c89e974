package manage

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/pkg/agent"
)

// RegisterAgent implements RegistryService.
func (m *Manager) RegisterAgent(ctx context.Context, req *teamv1.RegisterAgentRequest) (*teamv1.RegisterAgentResponse, error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	d, err := agentDocument(req.GetAgentId(), req.GetConfig())
	if err != nil {
		return nil, err
	}
	if err := m.change(ctx, m.add(d, who, req.GetValidateOnly())); err != nil {
		return nil, err
	}
	if req.GetValidateOnly() {
		return &teamv1.RegisterAgentResponse{Agent: &teamv1.RegisteredAgent{Id: d.id, Origin: teamv1.Origin_ORIGIN_API}}, nil
	}
	a, err := m.agent(ctx, d.id, true)
	return &teamv1.RegisterAgentResponse{Agent: a}, err
}

// UpdateAgent implements RegistryService.
func (m *Manager) UpdateAgent(ctx context.Context, req *teamv1.UpdateAgentRequest) (*teamv1.UpdateAgentResponse, error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	d, err := agentDocument(req.GetAgentId(), req.GetConfig())
	if err != nil {
		return nil, err
	}
	if err := m.change(ctx, m.replace(d, who, req.GetEtag(), req.GetValidateOnly(), agentEntry)); err != nil {
		return nil, err
	}
	if req.GetValidateOnly() {
		return &teamv1.UpdateAgentResponse{Agent: &teamv1.RegisteredAgent{Id: d.id, Origin: teamv1.Origin_ORIGIN_API}}, nil
	}
	a, err := m.agent(ctx, d.id, true)
	return &teamv1.UpdateAgentResponse{Agent: a}, err
}

// UnregisterAgent implements RegistryService.
func (m *Manager) UnregisterAgent(ctx context.Context, req *teamv1.UnregisterAgentRequest) (*teamv1.UnregisterAgentResponse, error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	return &teamv1.UnregisterAgentResponse{}, m.change(ctx, remove(req.GetAgentId(), who, req.GetEtag(), agentEntry))
}

// GetAgent implements RegistryService.
func (m *Manager) GetAgent(ctx context.Context, req *teamv1.GetAgentRequest) (*teamv1.GetAgentResponse, error) {
	a, err := m.agent(ctx, req.GetAgentId(), true)
	return &teamv1.GetAgentResponse{Agent: a}, err
}

// ListAgents implements RegistryService.
func (m *Manager) ListAgents(ctx context.Context, req *teamv1.ListAgentsRequest) (*teamv1.ListAgentsResponse, error) {
	def := m.reg.Served()
	var ids []string
	for id := range def.Used {
		if m.reg.sees(ctx, id) && (req.GetKind() == "" || req.GetKind() == config.Kind(def.Server.GetAgents()[id])) {
			ids = append(ids, id)
		}
	}
	for id := range m.reg.state().entries {
		if req.GetKind() == "" && m.unserved(ctx, id) != nil {
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
		a, err := m.agent(ctx, id, false)
		if err != nil {
			continue // deleted in the meantime
		}
		resp.Agents = append(resp.Agents, a)
	}
	return resp, nil
}

// agentEntry returns the catalog entry of an agent, or the reason why the caller cannot change the
// agent.
func agentEntry(s *state, id string, who identity.Caller) (*entry, error) {
	e, with := s.entries[id], s.owners[id]
	switch {
	case e != nil && !s.mayChange(e, who), with != "" && !s.mayChange(s.entries[with], who):
		return nil, agentNotFound(id)
	case e != nil && !e.team():
		return e, nil
	case e != nil, s.file.Server.GetTeams()[id] != nil && s.readable(id, who):
		return nil, notChangeable("%q is a team; use the methods for teams to change it", id)
	case with != "":
		return nil, notChangeable("agent %q is part of team %q; change the team", id, with)
	case s.file.Server.GetAgents()[id] != nil && s.readable(id, who):
		return nil, notChangeable("agent %q is defined in the server's configuration file; change it there", id)
	}
	return nil, agentNotFound(id)
}

func agentNotFound(id string) error {
	return agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "there is no agent %.64q", id)
}

// agent returns the description of an agent or team that is served. If fresh is true, its health is
// checked now.
func (m *Manager) agent(ctx context.Context, id string, fresh bool) (*teamv1.RegisteredAgent, error) {
	if err := m.reg.seek(ctx, id); err != nil {
		return nil, err
	}
	def := m.reg.Served()
	if a := m.unserved(ctx, id); a != nil {
		return a, nil
	}
	if !def.Used[id] || !m.reg.sees(ctx, id) {
		return nil, agentNotFound(id)
	}
	a := &teamv1.RegisteredAgent{Id: id, Kind: config.Kind(def.Server.GetAgents()[id]), Origin: teamv1.Origin_ORIGIN_FILE, Info: m.info(ctx, id), Health: m.health(ctx, id, fresh)}
	if with := def.Addition(id); with != "" {
		a.Origin = teamv1.Origin_ORIGIN_API
		who, _ := identity.CallerOf(ctx)
		if s := m.reg.state(); s.entries[with] != nil && s.mayChange(s.entries[with], who) {
			e := s.entries[with]
			a.Changed, a.ChangedBy = timestamppb.New(e.Changed), e.ChangedBy
			if with == id && !e.team() {
				a.Etag = etagOf(e)
			}
		}
	}
	return a, nil
}

// unserved returns the description of an agent of the catalog that cannot be served, with the reason as
// its health, if the caller of ctx may change it; else nil.
func (m *Manager) unserved(ctx context.Context, id string) *teamv1.RegisteredAgent {
	s := m.reg.state()
	e := s.entries[id]
	who, _ := identity.CallerOf(ctx)
	if e == nil || e.def != nil || e.team() || !s.mayChange(e, who) {
		return nil
	}
	return &teamv1.RegisteredAgent{
		Id: id, Origin: teamv1.Origin_ORIGIN_API, Health: agent.Unhealthy(cmp.Or(e.fault(), "it cannot be served")), Etag: etagOf(e), Changed: timestamppb.New(e.Changed), ChangedBy: e.ChangedBy,
	}
}

// info returns the self-description of an agent, or nil if it is not available.
func (m *Manager) info(ctx context.Context, id string) *teamv1.AgentInfo {
	a, err := m.reg.Get(id)
	if err != nil {
		return nil
	}
	info, err := a.Info(ctx)
	if err != nil {
		return nil
	}
	return info
}
