package client

import (
	"context"
	"net/http"
	"net/url"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

const collaborations = "/collaborations"

// Start starts a collaboration.
func (t *Team) Start(ctx context.Context, req *teamv1.StartCollaborationRequest) (*teamv1.StartCollaborationResponse, error) {
	out := &teamv1.StartCollaborationResponse{}
	return out, t.call(ctx, http.MethodPost, collaborations, req, out)
}

// Collaboration returns the status of a collaboration, with details.
func (t *Team) Collaboration(ctx context.Context, id string) (*teamv1.GetCollaborationStatusResponse, error) {
	out := &teamv1.GetCollaborationStatusResponse{}
	return out, t.call(ctx, http.MethodGet, collaborations+"/"+url.PathEscape(id)+"?includeDetails=true", nil, out)
}

// Pause pauses a collaboration: running work finishes, and no new work starts.
func (t *Team) Pause(ctx context.Context, id string) (*teamv1.GetCollaborationStatusResponse, error) {
	out := &teamv1.PauseCollaborationResponse{}
	err := t.call(ctx, http.MethodPost, collaborations+"/"+url.PathEscape(id)+":pause", &teamv1.PauseCollaborationRequest{}, out)
	return out.GetCollaboration(), err
}

// Resume resumes a paused collaboration.
func (t *Team) Resume(ctx context.Context, id string) (*teamv1.GetCollaborationStatusResponse, error) {
	out := &teamv1.ResumeCollaborationResponse{}
	err := t.call(ctx, http.MethodPost, collaborations+"/"+url.PathEscape(id)+":resume", &teamv1.ResumeCollaborationRequest{}, out)
	return out.GetCollaboration(), err
}

// Stop stops a collaboration and returns its results.
func (t *Team) Stop(ctx context.Context, req *teamv1.StopCollaborationRequest) (*teamv1.StopCollaborationResponse, error) {
	out := &teamv1.StopCollaborationResponse{}
	return out, t.call(ctx, http.MethodPost, collaborations+"/"+url.PathEscape(req.GetCollaborationId())+":stop", req, out)
}

// Collaborations returns the caller's collaborations, newest first. An empty team means those
// of all teams.
func (t *Team) Collaborations(ctx context.Context, team string) ([]*teamv1.GetCollaborationStatusResponse, error) {
	return all(func(page url.Values) ([]*teamv1.GetCollaborationStatusResponse, string, error) {
		page.Set("teamId", team)
		out := &teamv1.ListCollaborationsResponse{}
		err := t.call(ctx, http.MethodGet, collaborations+"?"+page.Encode(), nil, out)
		return out.GetCollaborations(), out.GetNextPageToken(), err
	})
}
