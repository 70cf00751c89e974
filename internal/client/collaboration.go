package client

import (
	"context"
	"net/http"
	"net/url"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

const collaborations = "/collaborations"

// Start begins a collaboration.
func (t *Team) Start(ctx context.Context, req *teamv1.StartCollaborationRequest) (*teamv1.StartCollaborationResponse, error) {
	out := &teamv1.StartCollaborationResponse{}
	return out, t.call(ctx, http.MethodPost, collaborations, req, out)
}

// Collaboration says how one stands, with its details.
func (t *Team) Collaboration(ctx context.Context, id string) (*teamv1.GetCollaborationStatusResponse, error) {
	out := &teamv1.GetCollaborationStatusResponse{}
	return out, t.call(ctx, http.MethodGet, collaborations+"/"+url.PathEscape(id)+"?includeDetails=true", nil, out)
}

// Pause has nothing more of one begin.
func (t *Team) Pause(ctx context.Context, id string) (*teamv1.GetCollaborationStatusResponse, error) {
	out := &teamv1.PauseCollaborationResponse{}
	err := t.call(ctx, http.MethodPost, collaborations+"/"+url.PathEscape(id)+":pause", &teamv1.PauseCollaborationRequest{}, out)
	return out.GetCollaboration(), err
}

// Resume has a paused one go on.
func (t *Team) Resume(ctx context.Context, id string) (*teamv1.GetCollaborationStatusResponse, error) {
	out := &teamv1.ResumeCollaborationResponse{}
	err := t.call(ctx, http.MethodPost, collaborations+"/"+url.PathEscape(id)+":resume", &teamv1.ResumeCollaborationRequest{}, out)
	return out.GetCollaboration(), err
}

// Stop ends one, and returns its results.
func (t *Team) Stop(ctx context.Context, req *teamv1.StopCollaborationRequest) (*teamv1.StopCollaborationResponse, error) {
	out := &teamv1.StopCollaborationResponse{}
	return out, t.call(ctx, http.MethodPost, collaborations+"/"+url.PathEscape(req.GetCollaborationId())+":stop", req, out)
}

// Collaborations returns the caller's, the newest first; of a team unless it is empty.
func (t *Team) Collaborations(ctx context.Context, team string) ([]*teamv1.GetCollaborationStatusResponse, error) {
	var all []*teamv1.GetCollaborationStatusResponse
	for token := ""; ; {
		query := paged(token)
		query.Set("teamId", team)
		out := &teamv1.ListCollaborationsResponse{}
		if err := t.call(ctx, http.MethodGet, collaborations+"?"+query.Encode(), nil, out); err != nil {
			return nil, err
		}
		all = append(all, out.GetCollaborations()...)
		if token = out.GetNextPageToken(); token == "" {
			return all, nil
		}
	}
}
