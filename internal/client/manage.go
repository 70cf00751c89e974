package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// GetTeam returns a team.
func (t *Team) GetTeam(ctx context.Context, id string) (*teamv1.Team, error) {
	out := &teamv1.GetTeamResponse{}
	err := t.call(ctx, http.MethodGet, "/teams/"+url.PathEscape(id), nil, out)
	return out.GetTeam(), err
}

// ListTeams returns all teams, by id, without their definitions.
func (t *Team) ListTeams(ctx context.Context) ([]*teamv1.Team, error) {
	var all []*teamv1.Team
	for token := ""; ; {
		out := &teamv1.ListTeamsResponse{}
		if err := t.call(ctx, http.MethodGet, "/teams?"+paged(token).Encode(), nil, out); err != nil {
			return nil, err
		}
		all = append(all, out.GetTeams()...)
		if token = out.GetNextPageToken(); token == "" {
			return all, nil
		}
	}
}

// CreateTeam makes a team.
func (t *Team) CreateTeam(ctx context.Context, req *teamv1.CreateTeamRequest) (*teamv1.Team, error) {
	out := &teamv1.CreateTeamResponse{}
	err := t.call(ctx, http.MethodPost, "/teams", req, out)
	return out.GetTeam(), err
}

// UpdateTeam changes a team.
func (t *Team) UpdateTeam(ctx context.Context, req *teamv1.UpdateTeamRequest) (*teamv1.Team, error) {
	out := &teamv1.UpdateTeamResponse{}
	err := t.call(ctx, http.MethodPut, "/teams/"+url.PathEscape(req.GetTeamId()), req, out)
	return out.GetTeam(), err
}

// DeleteTeam takes a team away.
func (t *Team) DeleteTeam(ctx context.Context, id string) error {
	return t.call(ctx, http.MethodDelete, "/teams/"+url.PathEscape(id), nil, &teamv1.DeleteTeamResponse{})
}

// ListAgents returns all agents of a skill and a kind, by id; empty is any.
func (t *Team) ListAgents(ctx context.Context, skill, kind string) ([]*teamv1.RegisteredAgent, error) {
	var all []*teamv1.RegisteredAgent
	for token := ""; ; {
		query := paged(token)
		query.Set("skill", skill)
		query.Set("kind", kind)
		out := &teamv1.ListAgentsResponse{}
		if err := t.call(ctx, http.MethodGet, "/registry/agents?"+query.Encode(), nil, out); err != nil {
			return nil, err
		}
		all = append(all, out.GetAgents()...)
		if token = out.GetNextPageToken(); token == "" {
			return all, nil
		}
	}
}

// GetAgent returns an agent, which is asked how it is.
func (t *Team) GetAgent(ctx context.Context, id string) (*teamv1.RegisteredAgent, error) {
	out := &teamv1.GetAgentResponse{}
	err := t.call(ctx, http.MethodGet, "/registry/agents/"+url.PathEscape(id), nil, out)
	return out.GetAgent(), err
}

// paged asks for as much as there may be in one answer.
func paged(token string) url.Values {
	return url.Values{"pageSize": {strconv.Itoa(100)}, "pageToken": {token}}
}
