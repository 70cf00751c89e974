package server

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Collaborations implements the collaboration service, like *collab.Service. The context
// carries the caller and errors are reported as described at Handler. Implementations are
// safe for concurrent use.
type Collaborations interface {
	StartCollaboration(context.Context, *teamv1.StartCollaborationRequest) (*teamv1.StartCollaborationResponse, error)
	GetCollaborationStatus(context.Context, *teamv1.GetCollaborationStatusRequest) (*teamv1.GetCollaborationStatusResponse, error)
	ListCollaborations(context.Context, *teamv1.ListCollaborationsRequest) (*teamv1.ListCollaborationsResponse, error)
	PauseCollaboration(context.Context, *teamv1.PauseCollaborationRequest) (*teamv1.PauseCollaborationResponse, error)
	ResumeCollaboration(context.Context, *teamv1.ResumeCollaborationRequest) (*teamv1.ResumeCollaborationResponse, error)
	StopCollaboration(context.Context, *teamv1.StopCollaborationRequest) (*teamv1.StopCollaborationResponse, error)
	// Delete calls remove, which deletes the team, once no collaborations of the team are
	// running. With force it stops those that run.
	Delete(ctx context.Context, team string, force bool, remove func(context.Context) error) error
	// Describe adds what the collaborations of a team are doing to the team's status.
	Describe(ctx context.Context, team string, to *teamv1.GetTeamStatusResponse) error
}

// collaborationService is the gRPC and REST service for collaborations.
type collaborationService struct {
	teamv1.UnimplementedCollaborationServiceServer
	*Server
}

// StartCollaboration starts a collaboration.
func (s collaborationService) StartCollaboration(ctx context.Context, req *teamv1.StartCollaborationRequest) (*teamv1.StartCollaborationResponse, error) {
	return unary(ctx, s.Server, "StartCollaboration", false, req, s.config.Collaborations.StartCollaboration)
}

// GetCollaborationStatus returns the status of a collaboration.
func (s collaborationService) GetCollaborationStatus(ctx context.Context, req *teamv1.GetCollaborationStatusRequest) (*teamv1.GetCollaborationStatusResponse, error) {
	return unary(ctx, s.Server, "GetCollaborationStatus", false, req, s.config.Collaborations.GetCollaborationStatus)
}

// ListCollaborations returns a page of the caller's collaborations.
func (s collaborationService) ListCollaborations(ctx context.Context, req *teamv1.ListCollaborationsRequest) (*teamv1.ListCollaborationsResponse, error) {
	return unary(ctx, s.Server, "ListCollaborations", false, req, s.config.Collaborations.ListCollaborations)
}

// PauseCollaboration pauses a collaboration: no new work starts, and running work finishes.
func (s collaborationService) PauseCollaboration(ctx context.Context, req *teamv1.PauseCollaborationRequest) (*teamv1.PauseCollaborationResponse, error) {
	return unary(ctx, s.Server, "PauseCollaboration", false, req, s.config.Collaborations.PauseCollaboration)
}

// ResumeCollaboration resumes a paused collaboration.
func (s collaborationService) ResumeCollaboration(ctx context.Context, req *teamv1.ResumeCollaborationRequest) (*teamv1.ResumeCollaborationResponse, error) {
	return unary(ctx, s.Server, "ResumeCollaboration", false, req, s.config.Collaborations.ResumeCollaboration)
}

// StopCollaboration stops a collaboration and returns its results once it has ended.
func (s collaborationService) StopCollaboration(ctx context.Context, req *teamv1.StopCollaborationRequest) (*teamv1.StopCollaborationResponse, error) {
	return unary(ctx, s.Server, "StopCollaboration", true, req, s.config.Collaborations.StopCollaboration)
}

// teamsWithCollaborations wraps Teams: it considers the collaborations of a team when the
// team is deleted, and adds them to its status.
type teamsWithCollaborations struct {
	Teams
	c Collaborations
}

// DeleteTeam deletes a team unless collaborations of it are running; with force it stops
// them first.
func (t teamsWithCollaborations) DeleteTeam(ctx context.Context, req *teamv1.DeleteTeamRequest) (*teamv1.DeleteTeamResponse, error) {
	if err := t.Deletable(ctx, req); err != nil {
		return nil, err
	}
	err := t.c.Delete(ctx, req.GetTeamId(), req.GetForce(), func(ctx context.Context) error {
		_, err := t.Teams.DeleteTeam(ctx, req)
		return err
	})
	return &teamv1.DeleteTeamResponse{}, err
}

// GetTeamStatus returns the status of a team and of its agents.
func (t teamsWithCollaborations) GetTeamStatus(ctx context.Context, req *teamv1.GetTeamStatusRequest) (*teamv1.GetTeamStatusResponse, error) {
	resp, err := t.Teams.GetTeamStatus(ctx, req)
	if err == nil {
		err = t.c.Describe(ctx, req.GetTeamId(), resp)
	}
	return resp, err
}

// collaborationRoutes returns the routes that reject GET on the actions of collaborations,
// which the generated routes would read as part of an id, and the routes of contract calls.
func (s *Server) collaborationRoutes() []route {
	if s.config.Collaborations == nil {
		return nil
	}
	var routes []route
	for _, verb := range []string{"pause", "resume", "stop"} {
		routes = append(routes, route{"GET", "/team/v1/collaborations/{collaboration_id}:" + verb, s.wrongMethod})
	}
	return append(routes, s.contractRoutes()...)
}
