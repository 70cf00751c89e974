package manage

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"buf.build/go/protoyaml"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/catalog"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// CreateTeam implements TeamService.
func (m *Manager) CreateTeam(ctx context.Context, req *teamv1.CreateTeamRequest) (*teamv1.CreateTeamResponse, error) {
	who, err := manager(ctx)
	if err != nil {
		return nil, err
	}
	d, err := teamDocument(req.GetYaml(), req.GetConfig(), req.GetTeamId(), req.GetForm() != nil)
	if err != nil {
		return nil, err
	}
	err = m.change(ctx, req.GetValidateOnly(), func(catalog.Snapshot) (catalog.Change, error) { return m.put(d, who, nil), nil })
	if err != nil {
		return nil, err
	}
	if req.GetValidateOnly() {
		return &teamv1.CreateTeamResponse{Team: &teamv1.Team{Id: d.id, Yaml: string(d.data), Origin: teamv1.Origin_ORIGIN_API}}, nil
	}
	t, err := m.team(ctx, d.id)
	return &teamv1.CreateTeamResponse{Team: t}, err
}

// UpdateTeam implements TeamService.
func (m *Manager) UpdateTeam(ctx context.Context, req *teamv1.UpdateTeamRequest) (*teamv1.UpdateTeamResponse, error) {
	who, err := manager(ctx)
	if err != nil {
		return nil, err
	}
	d, err := teamDocument(req.GetYaml(), req.GetConfig(), req.GetTeamId(), req.GetForm() != nil)
	if err != nil {
		return nil, err
	}
	if d.id != req.GetTeamId() {
		return nil, a2a.Invalid(a2a.Violation{Field: "teamId", Description: "is " + strconv.Quote(req.GetTeamId()) + ", and the definition is of " + strconv.Quote(d.id)})
	}
	err = m.change(ctx, req.GetValidateOnly(), func(snap catalog.Snapshot) (catalog.Change, error) {
		old, err := m.entry(snap, d.id, req.GetEtag(), m.noTeam)
		return m.put(d, who, old), err
	})
	if err != nil {
		return nil, err
	}
	t, err := m.team(ctx, d.id)
	return &teamv1.UpdateTeamResponse{Team: t}, err
}

// DeleteTeam implements TeamService.
func (m *Manager) DeleteTeam(ctx context.Context, req *teamv1.DeleteTeamRequest) (*teamv1.DeleteTeamResponse, error) {
	if _, err := manager(ctx); err != nil {
		return nil, err
	}
	err := m.change(ctx, false, func(snap catalog.Snapshot) (catalog.Change, error) {
		_, err := m.entry(snap, req.GetTeamId(), req.GetEtag(), m.noTeam)
		return catalog.Change{Delete: []string{req.GetTeamId()}}, err
	})
	return &teamv1.DeleteTeamResponse{}, err
}

// GetTeam implements TeamService.
func (m *Manager) GetTeam(ctx context.Context, req *teamv1.GetTeamRequest) (*teamv1.GetTeamResponse, error) {
	t, err := m.team(ctx, req.GetTeamId())
	return &teamv1.GetTeamResponse{Team: t}, err
}

// ListTeams implements TeamService.
func (m *Manager) ListTeams(ctx context.Context, req *teamv1.ListTeamsRequest) (*teamv1.ListTeamsResponse, error) {
	ids, next, err := page(m.teams(), req.GetPageSize(), req.GetPageToken())
	if err != nil {
		return nil, err
	}
	resp := &teamv1.ListTeamsResponse{NextPageToken: next}
	for _, id := range ids {
		t, err := m.team(ctx, id)
		if err != nil && agent.AsError(err).Reason == agent.ReasonTeamNotFound {
			continue // it has been deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		t.Yaml = ""
		resp.Teams = append(resp.Teams, t)
	}
	return resp, nil
}

// GetTeamStatus implements TeamService.
func (m *Manager) GetTeamStatus(ctx context.Context, req *teamv1.GetTeamStatusRequest) (*teamv1.GetTeamStatusResponse, error) {
	t, err := m.team(ctx, req.GetTeamId())
	if err != nil {
		return nil, err
	}
	resp := &teamv1.GetTeamStatusResponse{State: t.GetState(), Detail: t.GetDetail()}
	def := m.c.Live.Definition().Server.GetTeams()[req.GetTeamId()]
	if def == nil {
		return resp, nil
	}
	health := m.health(ctx, req.GetTeamId())
	if config.Leader(def) != nil {
		resp.Members = append(resp.Members, &teamv1.TeamMember{
			Id: req.GetTeamId(), Role: teamv1.TeamMember_ROLE_LEAD, Health: &teamv1.MemberHealth{Id: req.GetTeamId(), Healthy: true},
		})
	}
	for _, member := range config.Members(def) {
		one := &teamv1.TeamMember{Id: member.ID, AgentId: member.Agent, Role: teamv1.TeamMember_ROLE_MEMBER, Health: &teamv1.MemberHealth{Id: member.ID}}
		for _, h := range health.GetMembers() {
			if h.GetId() == member.ID {
				one.Health = h
			}
		}
		resp.Members = append(resp.Members, one)
	}
	return resp, nil
}

// document is what is kept of a team or an agent.
type document struct {
	id   string
	data []byte
}

// teamDocument is the document of a team: as it was given, or made of its definition.
func teamDocument(yaml string, c *teamv1.TeamConfig, id string, given bool) (document, error) {
	switch {
	case !given:
		return document{}, a2a.Invalid(a2a.Violation{Field: "yaml", Description: "or config is required"})
	case len(yaml) > maxDocument:
		return document{}, a2a.Invalid(a2a.Violation{Field: "yaml", Description: "is larger than 1 MiB"})
	case c == nil:
		return one(config.Addition{Name: "yaml", Data: []byte(yaml)})
	case id == "":
		return document{}, a2a.Invalid(a2a.Violation{Field: "teamId", Description: "is required with config"})
	}
	return rendered(id, &teamv1.ServerConfig{Teams: map[string]*teamv1.TeamConfig{id: c}})
}

// one wants exactly one team in a document.
func one(a config.Addition) (document, error) {
	agents, teams, faults := config.Outline(a)
	if faults != nil {
		return document{}, invalid(faults)
	}
	if len(teams) != 1 {
		return document{}, a2a.Invalid(a2a.Violation{Field: "yaml", Description: "must define one team, with the agents that come with it; it defines " +
			strconv.Itoa(len(teams)) + " teams and " + strconv.Itoa(len(agents)) + " agents"})
	}
	return document{teams[0], a.Data}, nil
}

// rendered is a document of definitions.
func rendered(id string, c *teamv1.ServerConfig) (document, error) {
	data, err := protoyaml.MarshalOptions{UseProtoNames: true}.Marshal(c)
	return document{id, data}, err
}

// put is the change that puts a document in the place of an entry, nil for none.
func (m *Manager) put(d document, who a2a.Caller, old *catalog.Entry) catalog.Change {
	e := catalog.Entry{ID: d.id, Data: d.data, Created: m.c.Clock().UTC(), Changed: m.c.Clock().UTC(), ChangedBy: who.Owner()}
	if old != nil {
		e.Created = old.Created
	}
	return catalog.Change{Put: []catalog.Entry{e}}
}

// entry finds an entry to change, if it is as whoever changes it has seen it.
func (m *Manager) entry(snap catalog.Snapshot, id, etag string, missing func(id string) error) (*catalog.Entry, error) {
	i := slices.IndexFunc(snap.Entries, func(e catalog.Entry) bool { return e.ID == id })
	if i < 0 {
		return nil, missing(id)
	}
	e := &snap.Entries[i]
	if etag != "" && etag != etagOf(*e) {
		return nil, agent.Errorf(agent.CodeAborted, agent.ReasonVersionConflict,
			"%q has changed since it was read: its etag is %s; read it again", id, etagOf(*e))
	}
	return e, nil
}

func etagOf(e catalog.Entry) string { return strconv.FormatInt(e.Version, 10) }

// noTeam is the error for a team that cannot be changed here.
func (m *Manager) noTeam(id string) error {
	def := m.c.Live.Definition()
	if def.Server.GetTeams()[id] == nil {
		return teamNotFound(id)
	}
	if with := def.Addition(id); with != "" {
		return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig, "team %q came with %q; change that", id, with)
	}
	return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig, "team %q is defined in the file of the server; change it there", id)
}

func teamNotFound(id string) error {
	return agent.Errorf(agent.CodeNotFound, agent.ReasonTeamNotFound, "there is no team %q", id)
}

// teams are the ids of all teams, also of those that are not served; sorted.
func (m *Manager) teams() []string {
	var ids []string
	for id := range m.c.Live.Definition().Server.GetTeams() {
		ids = append(ids, id)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.broken {
		if _, teams, faults := config.Outline(config.Addition{Name: id, Data: m.find(id).Data}); faults == nil && slices.Contains(teams, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// find returns an entry; the zero value for none. The caller holds mu.
func (m *Manager) find(id string) catalog.Entry {
	for _, e := range m.served.Entries {
		if e.ID == id {
			return e
		}
	}
	return catalog.Entry{}
}

// team is a team as it is served.
func (m *Manager) team(ctx context.Context, id string) (*teamv1.Team, error) {
	m.mu.Lock()
	e, broken := m.find(id), m.broken[id]
	m.mu.Unlock()
	def := m.c.Live.Definition()
	t := &teamv1.Team{Id: id, Name: id, Origin: teamv1.Origin_ORIGIN_FILE, Revision: m.c.Live.Revision(id)}
	if e.ID != "" {
		t.Origin, t.Etag, t.Yaml, t.ChangedBy = teamv1.Origin_ORIGIN_API, etagOf(e), string(e.Data), e.ChangedBy
		t.Created, t.Changed = timestamppb.New(e.Created), timestamppb.New(e.Changed)
	}
	c := def.Server.GetTeams()[id]
	switch {
	case c == nil && broken == nil:
		return nil, teamNotFound(id)
	case c == nil:
		t.State, t.Detail = teamv1.TeamState_TEAM_STATE_ERROR, broken[0].String()
		return t, nil
	}
	t.Description, t.Mode = c.GetDescription(), config.Mode(c)
	if c.GetName() != "" {
		t.Name = c.GetName()
	}
	t.State = teamv1.TeamState_TEAM_STATE_READY
	if h := m.health(ctx, id); !h.GetHealthy() {
		t.State, t.Detail = teamv1.TeamState_TEAM_STATE_DEGRADED, h.GetDetail()
	}
	return t, nil
}

func (m *Manager) health(ctx context.Context, id string) *teamv1.Health {
	a, err := m.c.Live.Get(id)
	if err != nil {
		return agent.Unhealthy(agent.AsError(err).Message)
	}
	h, err := a.HealthCheck(ctx)
	if err != nil {
		return agent.Unhealthy(agent.AsError(err).Message)
	}
	return h
}

// manager is who calls, if that may manage teams.
func manager(ctx context.Context) (a2a.Caller, error) {
	who, ok := a2a.CallerOf(ctx)
	switch {
	case !ok:
		return who, agent.Errorf(agent.CodeUnauthenticated, agent.ReasonUnauthenticated, "who calls is not known")
	case !who.Manages:
		return who, agent.Errorf(agent.CodePermissionDenied, agent.ReasonPermissionDenied,
			"this key may not manage teams; use one with manage: true in the file of the server")
	}
	return who, nil
}

const (
	defaultPage = 50
	maxPage     = 100
)

// page cuts a page out of sorted ids. A token is the last id of the page before.
func page(ids []string, size int32, token string) (list []string, next string, err error) {
	if size < 0 || size > maxPage {
		return nil, "", a2a.Invalid(a2a.Violation{Field: "pageSize", Description: "must be 1 to 100"})
	}
	if size == 0 {
		size = defaultPage
	}
	i, found := slices.BinarySearch(ids, token)
	if found {
		i++
	}
	if strings.TrimSpace(token) != token {
		return nil, "", a2a.Invalid(a2a.Violation{Field: "pageToken", Description: "is not a token of this list; begin again without one"})
	}
	list = ids[i:]
	if len(list) > int(size) {
		list = list[:size]
		next = list[size-1]
	}
	return list, next, nil
}
