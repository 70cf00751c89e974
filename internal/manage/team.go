package manage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/catalog"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/internal/config/warnings"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// CreateTeam implements TeamService.
func (m *Manager) CreateTeam(ctx context.Context, req *teamv1.CreateTeamRequest) (*teamv1.CreateTeamResponse, error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	d, err := m.newTeam(req)
	if err != nil {
		return nil, err
	}
	m.reg.making.Store(agent.KeyOf(who.Account, d.id), true)
	err = m.change(ctx, m.add(d, who, req.GetValidateOnly()))
	m.reg.making.Delete(agent.KeyOf(who.Account, d.id))
	if err != nil {
		return nil, m.roleErrors(req.GetContract(), d.id, err)
	}
	if req.GetValidateOnly() {
		return &teamv1.CreateTeamResponse{Team: draft(d)}, nil
	}
	t, err := m.team(ctx, d.id, true)
	return &teamv1.CreateTeamResponse{Team: t, Members: m.members(ctx, d.id)}, err
}

// newTeam returns the document of a team to create.
func (m *Manager) newTeam(req *teamv1.CreateTeamRequest) (document, error) {
	if c := req.GetContract(); c != nil {
		return m.contractDocument(c, cmp.Or(req.GetTeamId(), m.c.NewID()))
	}
	return m.teamDocument(req.GetYaml(), req.GetConfig(), req.GetTeamId(), req.GetForm() != nil)
}

// UpdateTeam implements TeamService.
func (m *Manager) UpdateTeam(ctx context.Context, req *teamv1.UpdateTeamRequest) (*teamv1.UpdateTeamResponse, error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	if req.GetTeamId() == "" {
		return nil, a2aerror.Invalid(agent.Violation{Field: "teamId", Description: "is required"})
	}
	d, err := m.teamDocument(req.GetYaml(), req.GetConfig(), req.GetTeamId(), req.GetForm() != nil)
	if err != nil {
		return nil, err
	}
	if d.id != req.GetTeamId() {
		return nil, refused("yaml", fmt.Sprintf("defines team %.64q instead of %.64q", d.id, req.GetTeamId()))
	}
	if err := m.change(ctx, m.replace(d, who, req.GetEtag(), req.GetValidateOnly(), teamEntry)); err != nil {
		return nil, err
	}
	if req.GetValidateOnly() {
		return &teamv1.UpdateTeamResponse{Team: draft(d)}, nil
	}
	t, err := m.team(ctx, d.id, true)
	return &teamv1.UpdateTeamResponse{Team: t}, err
}

// DeleteTeam implements TeamService.
func (m *Manager) DeleteTeam(ctx context.Context, req *teamv1.DeleteTeamRequest) (*teamv1.DeleteTeamResponse, error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	return &teamv1.DeleteTeamResponse{}, m.change(ctx, remove(req.GetTeamId(), who, req.GetEtag(), teamEntry))
}

// Deletable returns the error that DeleteTeam would return, or nil, without deleting the team. It
// does not check whether the team has active collaborations.
func (m *Manager) Deletable(ctx context.Context, req *teamv1.DeleteTeamRequest) error {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return err
	}
	c := remove(req.GetTeamId(), who, req.GetEtag(), teamEntry)
	c.dry = true
	return m.change(ctx, c)
}

// GetTeam implements TeamService.
func (m *Manager) GetTeam(ctx context.Context, req *teamv1.GetTeamRequest) (*teamv1.GetTeamResponse, error) {
	t, err := m.team(ctx, req.GetTeamId(), true)
	return &teamv1.GetTeamResponse{Team: t}, err
}

// ListTeams implements TeamService.
func (m *Manager) ListTeams(ctx context.Context, req *teamv1.ListTeamsRequest) (*teamv1.ListTeamsResponse, error) {
	ids, next, err := page(m.teams(ctx), req.GetPageSize(), req.GetPageToken())
	if err != nil {
		return nil, err
	}
	resp := &teamv1.ListTeamsResponse{NextPageToken: next}
	for _, id := range ids {
		t, err := m.known(ctx, id, false)
		if err != nil && agent.AsError(err).Reason == agent.ReasonTeamNotFound {
			continue // deleted in the meantime
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
	t, err := m.team(ctx, req.GetTeamId(), true)
	if err != nil {
		return nil, err
	}
	return &teamv1.GetTeamStatusResponse{State: t.GetState(), Detail: t.GetDetail(), Members: m.members(ctx, req.GetTeamId())}, nil
}

// members returns the leader and the members of a team with their current health.
func (m *Manager) members(ctx context.Context, id string) []*teamv1.TeamMember {
	def := m.reg.Served().Server.GetTeams()[id]
	if def == nil {
		return nil
	}
	var list []*teamv1.TeamMember
	health := m.health(ctx, id, true)
	if modes.Leader(def) != nil {
		list = append(list, &teamv1.TeamMember{
			Id: id, Role: teamv1.TeamMember_ROLE_LEAD, Health: &teamv1.MemberHealth{Id: id, Healthy: true},
		})
	}
	for _, member := range modes.Members(def) {
		one := &teamv1.TeamMember{
			Id: cmp.Or(member.ID, member.Agent), AgentId: member.Agent, Role: teamv1.TeamMember_ROLE_MEMBER, RoleName: member.Role,
		}
		for _, h := range health.GetMembers() {
			if h.GetId() == one.GetId() {
				one.Health = h
			}
		}
		list = append(list, one)
	}
	return list
}

// draft returns the team that a validated request would create or update.
func draft(d document) *teamv1.Team {
	return &teamv1.Team{Id: d.id, Yaml: string(d.data), Origin: teamv1.Origin_ORIGIN_API}
}

// teamEntry returns the catalog entry of a team, or the reason why the caller cannot change the team.
func teamEntry(s *state, id string, who identity.Caller) (*entry, error) {
	e, with := s.entries[id], s.owners[id]
	switch {
	case e != nil && !s.mayChange(e, who), with != "" && !s.mayChange(s.entries[with], who):
		return nil, teamNotFound(id)
	case e != nil && (e.team() || e.outline == nil):
		return e, nil
	case with != "":
		return nil, notChangeable("agent %q is part of team %q; change the team", id, with)
	case s.file.Server.GetTeams()[id] != nil && s.readable(id, who):
		return nil, notChangeable("team %q is defined in the server's configuration file; change it there", id)
	}
	return nil, teamNotFound(id)
}

// notChangeable returns the error for something that this call cannot change.
func notChangeable(format string, args ...any) error {
	return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig, format, args...)
}

func teamNotFound(id string) error {
	return agent.Errorf(agent.CodeNotFound, agent.ReasonTeamNotFound, "there is no team %.64q", id)
}

// teams returns the ids of all teams that the caller may read, including those that are not served,
// sorted.
func (m *Manager) teams(ctx context.Context) []string {
	ids := slices.Collect(maps.Keys(m.reg.Served().Server.GetTeams()))
	for id, e := range m.reg.state().entries {
		if e.def == nil && e.team() {
			ids = append(ids, id)
		}
	}
	return m.reg.seen(ctx, slices.Values(ids))
}

// team returns the description of a team. If fresh is true, the health of its members is checked
// now.
func (m *Manager) team(ctx context.Context, id string, fresh bool) (*teamv1.Team, error) {
	if err := m.reg.seek(ctx, id); err != nil {
		return nil, err
	}
	return m.known(ctx, id, fresh)
}

// known is like team but does not sync with other replicas.
func (m *Manager) known(ctx context.Context, id string, fresh bool) (*teamv1.Team, error) {
	if !m.reg.sees(ctx, id) {
		return nil, teamNotFound(id)
	}
	def := m.reg.Served()
	t := &teamv1.Team{Id: id, Name: id, Origin: teamv1.Origin_ORIGIN_FILE, Revision: m.reg.Revision(id)}
	s := m.reg.state()
	e := s.entries[id]
	if e != nil && e.team() {
		t.Origin, t.Created, t.Changed = teamv1.Origin_ORIGIN_API, timestamppb.New(e.Created), timestamppb.New(e.Changed)
		if who, _ := identity.CallerOf(ctx); s.mayChange(e, who) { // other accounts may use it, but not read its prompts
			t.Etag, t.Yaml, t.ChangedBy = etagOf(e), string(e.Data), e.ChangedBy
		}
	}
	c := def.Server.GetTeams()[id]
	switch {
	case c == nil && (e == nil || !e.team()):
		return nil, teamNotFound(id)
	case c == nil:
		t.State, t.Detail = teamv1.TeamState_TEAM_STATE_ERROR, e.fault()
		return t, nil
	}
	t.Description, t.Mode = c.GetDescription(), modes.Name(c)
	if c.GetName() != "" {
		t.Name = c.GetName()
	}
	for _, l := range warnings.AdjustedOf(def.Server, id) {
		t.Adjusted = append(t.Adjusted, &teamv1.AdjustedLimit{Path: l.Path, Set: l.Set, Effective: l.Effective, Because: l.Because})
	}
	t.Unheld = warnings.UnheldOf(def.Server, id)
	for _, s := range modes.Plan(c) {
		t.Steps = append(t.Steps, &teamv1.TeamStep{Id: s.ID, Member: s.Member, After: s.After})
	}
	t.State = teamv1.TeamState_TEAM_STATE_READY
	if h := m.health(ctx, id, fresh); !h.GetHealthy() {
		t.State, t.Detail = teamv1.TeamState_TEAM_STATE_DEGRADED, h.GetDetail()
	}
	return t, nil
}

// health returns the health of an agent: the last known one, or if fresh is true the result of a
// check.
func (m *Manager) health(ctx context.Context, id string, fresh bool) *teamv1.Health {
	if !fresh {
		return m.reg.state().of(id).registry.Health(id)
	}
	a, err := m.reg.Get(id)
	if err != nil {
		return agent.Unhealthy(agent.AsError(err).Message)
	}
	h, err := a.HealthCheck(ctx)
	if err != nil {
		return agent.Unhealthy(agent.AsError(err).Message)
	}
	return h
}

// add returns the change that adds a document.
func (m *Manager) add(d document, who identity.Caller, dry bool) change {
	return change{action: "catalog.create", subject: d.id, dry: dry, field: d.field, decide: func(s *state) (catalog.Change, error) {
		for _, id := range d.ids {
			if _, taken := s.owners[id]; taken || s.entries[id] != nil {
				return catalog.Change{}, refused(cmp.Or(d.idField, d.form()), strconv.Quote(id)+" already exists; choose another id, or update the existing one")
			}
		}
		return m.put(d, who.Account, who, m.c.Clock()), nil
	}}
}

// find is a function that returns the entry to change, or the reason why the caller cannot change it.
type find func(s *state, id string, who identity.Caller) (*entry, error)

// replace returns the change that replaces an entry by a document.
func (m *Manager) replace(d document, who identity.Caller, etag string, dry bool, find find) change {
	return change{action: "catalog.update", subject: d.id, dry: dry, field: d.field, decide: func(s *state) (catalog.Change, error) {
		old, err := find(s, d.id, who)
		if err == nil {
			err = unchanged(old, etag)
		}
		if err != nil {
			return catalog.Change{}, err
		}
		for _, id := range d.ids {
			if owner, taken := s.owners[id]; taken && owner != d.id {
				why := " already exists; choose another id"
				if s.mayChange(s.entries[owner], who) {
					why = " is part of " + strconv.Quote(owner) + "; choose another id"
				}
				return catalog.Change{}, refused(d.form(), strconv.Quote(id)+why)
			}
		}
		return m.put(d, old.Account, who, old.Created), nil
	}}
}

// remove returns the change that deletes an entry.
func remove(id string, who identity.Caller, etag string, find find) change {
	return change{action: "catalog.delete", subject: id, decide: func(s *state) (catalog.Change, error) {
		old, err := find(s, id, who)
		if err == nil {
			err = unchanged(old, etag)
		}
		return catalog.Change{Delete: []string{id}}, err
	}}
}

// put returns the change that adds or replaces the entry of a document, which belongs to an account. Times are truncated to
// milliseconds, the precision of the stores.
func (m *Manager) put(d document, account string, who identity.Caller, created time.Time) catalog.Change {
	return catalog.Change{Put: []catalog.Entry{{
		ID: d.id, Data: d.data, Created: created.UTC().Truncate(time.Millisecond), Changed: m.c.Clock().UTC().Truncate(time.Millisecond),
		Account: account, ChangedBy: who.Owner(),
	}}}
}

// unchanged returns an error if an entry has changed since the caller read it.
func unchanged(e *entry, etag string) error {
	if etag == "" || etag == etagOf(e) {
		return nil
	}
	return agent.Errorf(agent.CodeAborted, agent.ReasonVersionConflict, "%q has changed since it was read: its etag is %s; read it again", e.ID, etagOf(e))
}

func etagOf(e *entry) string { return strconv.FormatInt(e.Version, 10) }

// page returns a page of sorted ids and the token of the next page. A token is the last id of the
// previous page, which may have been deleted in the meantime.
func page(ids []string, most int32, token string) (list []string, next string, err error) {
	size, err := a2aerror.PageSize("pageSize", most)
	if err != nil {
		return nil, "", err
	}
	if token != "" && !agent.ValidID(token) {
		return nil, "", runs.StoreError("", runs.ErrPageToken)
	}
	i, found := slices.BinarySearch(ids, token)
	if found {
		i++
	}
	list = ids[i:]
	if len(list) > size {
		list = list[:size]
		next = list[size-1]
	}
	return list, next, nil
}
