package server

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Collaborations answers the calls of the collaboration service; internal/collab has
// one. What holds for Handler holds for it.
type Collaborations interface {
	StartCollaboration(context.Context, *teamv1.StartCollaborationRequest) (*teamv1.StartCollaborationResponse, error)
	GetCollaborationStatus(context.Context, *teamv1.GetCollaborationStatusRequest) (*teamv1.GetCollaborationStatusResponse, error)
	ListCollaborations(context.Context, *teamv1.ListCollaborationsRequest) (*teamv1.ListCollaborationsResponse, error)
	PauseCollaboration(context.Context, *teamv1.PauseCollaborationRequest) (*teamv1.PauseCollaborationResponse, error)
	ResumeCollaboration(context.Context, *teamv1.ResumeCollaborationRequest) (*teamv1.ResumeCollaborationResponse, error)
	StopCollaboration(context.Context, *teamv1.StopCollaborationRequest) (*teamv1.StopCollaborationResponse, error)
	// Delete takes a team away by remove, once no collaborations of it are under way;
	// force stops them.
	Delete(ctx context.Context, team string, force bool, remove func(context.Context) error) error
	// Describe adds to the status of a team what its collaborations do.
	Describe(ctx context.Context, team string, to *teamv1.GetTeamStatusResponse) error
}

// collaborating is the collaboration service.
type collaborating struct {
	teamv1.UnimplementedCollaborationServiceServer
	*Server
}

// StartCollaboration has a team begin to work.
func (s collaborating) StartCollaboration(ctx context.Context, req *teamv1.StartCollaborationRequest) (*teamv1.StartCollaborationResponse, error) {
	return unary(ctx, s.Server, "StartCollaboration", false, req, s.config.Collaborations.StartCollaboration)
}

// GetCollaborationStatus says how a collaboration stands.
func (s collaborating) GetCollaborationStatus(ctx context.Context, req *teamv1.GetCollaborationStatusRequest) (*teamv1.GetCollaborationStatusResponse, error) {
	return unary(ctx, s.Server, "GetCollaborationStatus", false, req, s.config.Collaborations.GetCollaborationStatus)
}

// ListCollaborations lists the caller's.
func (s collaborating) ListCollaborations(ctx context.Context, req *teamv1.ListCollaborationsRequest) (*teamv1.ListCollaborationsResponse, error) {
	return unary(ctx, s.Server, "ListCollaborations", false, req, s.config.Collaborations.ListCollaborations)
}

// PauseCollaboration has nothing more begin.
func (s collaborating) PauseCollaboration(ctx context.Context, req *teamv1.PauseCollaborationRequest) (*teamv1.PauseCollaborationResponse, error) {
	return unary(ctx, s.Server, "PauseCollaboration", false, req, s.config.Collaborations.PauseCollaboration)
}

// ResumeCollaboration has a paused one go on.
func (s collaborating) ResumeCollaboration(ctx context.Context, req *teamv1.ResumeCollaborationRequest) (*teamv1.ResumeCollaborationResponse, error) {
	return unary(ctx, s.Server, "ResumeCollaboration", false, req, s.config.Collaborations.ResumeCollaboration)
}

// StopCollaboration ends one.
func (s collaborating) StopCollaboration(ctx context.Context, req *teamv1.StopCollaborationRequest) (*teamv1.StopCollaborationResponse, error) {
	return unary(ctx, s.Server, "StopCollaboration", true, req, s.config.Collaborations.StopCollaboration)
}

// teamsWith are the calls of the team service that collaborations have a say in.
type teamsWith struct {
	Teams
	c Collaborations
}

// DeleteTeam takes a team away that has no collaborations, or whose have been stopped.
func (t teamsWith) DeleteTeam(ctx context.Context, req *teamv1.DeleteTeamRequest) (*teamv1.DeleteTeamResponse, error) {
	if err := t.Deletable(ctx, req); err != nil {
		return nil, err
	}
	err := t.c.Delete(ctx, req.GetTeamId(), req.GetForce(), func(ctx context.Context) error {
		_, err := t.Teams.DeleteTeam(ctx, req)
		return err
	})
	return &teamv1.DeleteTeamResponse{}, err
}

// GetTeamStatus says how a team is.
func (t teamsWith) GetTeamStatus(ctx context.Context, req *teamv1.GetTeamStatusRequest) (*teamv1.GetTeamStatusResponse, error) {
	resp, err := t.Teams.GetTeamStatus(ctx, req)
	if err == nil {
		err = t.c.Describe(ctx, req.GetTeamId(), resp)
	}
	return resp, err
}

// collaborationRoutes are those that the generated ones take amiss.
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
