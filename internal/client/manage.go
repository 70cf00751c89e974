package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// GetTeam returns a team.
func (t *Team) GetTeam(ctx context.Context, id string) (*teamv1.Team, error) {
	out := &teamv1.GetTeamResponse{}
	err := t.call(ctx, http.MethodGet, "/teams/"+url.PathEscape(id), nil, out)
	return out.GetTeam(), err
}

// ListTeams returns all teams, ordered by id, without their definitions.
func (t *Team) ListTeams(ctx context.Context) ([]*teamv1.Team, error) {
	return all(func(page url.Values) ([]*teamv1.Team, string, error) {
		out := &teamv1.ListTeamsResponse{}
		err := t.call(ctx, http.MethodGet, "/teams?"+page.Encode(), nil, out)
		return out.GetTeams(), out.GetNextPageToken(), err
	})
}

// CreateTeam creates a team.
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

// DeleteTeam deletes a team.
func (t *Team) DeleteTeam(ctx context.Context, id string) error {
	return t.call(ctx, http.MethodDelete, "/teams/"+url.PathEscape(id), nil, &teamv1.DeleteTeamResponse{})
}

// ListAgents returns the agents with a skill and of a kind, ordered by id. An empty skill or
// kind means any.
func (t *Team) ListAgents(ctx context.Context, skill, kind string) ([]*teamv1.RegisteredAgent, error) {
	return all(func(page url.Values) ([]*teamv1.RegisteredAgent, string, error) {
		page.Set("skill", skill)
		page.Set("kind", kind)
		out := &teamv1.ListAgentsResponse{}
		err := t.call(ctx, http.MethodGet, "/registry/agents?"+page.Encode(), nil, out)
		return out.GetAgents(), out.GetNextPageToken(), err
	})
}

// GetAgent returns an agent. The server checks the health of the agent first.
func (t *Team) GetAgent(ctx context.Context, id string) (*teamv1.RegisteredAgent, error) {
	out := &teamv1.GetAgentResponse{}
	err := t.call(ctx, http.MethodGet, "/registry/agents/"+url.PathEscape(id), nil, out)
	return out.GetAgent(), err
}

// all returns the items of all pages. read reads a page of the greatest size; next is the
// token of the page after it, empty if it is the last one.
func all[T any](read func(page url.Values) (items []T, next string, err error)) ([]T, error) {
	var list []T
	for token := ""; ; {
		items, next, err := read(url.Values{"pageSize": {"100"}, "pageToken": {token}})
		if err != nil {
			return nil, err
		}
		list = append(list, items...)
		switch next {
		case "":
			return list, nil
		case token:
			return nil, fmt.Errorf("the server returned the same page token twice: %s", next)
		}
		token = next
	}
}
