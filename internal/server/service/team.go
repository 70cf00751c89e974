package service

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Teams implements the team and registry services, like *manage.Manager. The context carries
// the caller and errors are reported as described at Handler.
type Teams interface {
	teamv1.TeamServiceServer
	teamv1.RegistryServiceServer
	// Deletable returns the error with which DeleteTeam would reject the request, nil if it
	// would delete the team. It does not consider collaborations.
	Deletable(context.Context, *teamv1.DeleteTeamRequest) error
}

// teams returns the team service, nil if it is not served. If collaborations are served, it takes them into account.
func (c *Config) teams() any {
	if c.Teams == nil || c.Collaborations == nil {
		return c.Teams
	}
	return teamsWithCollaborations{c.Teams, c.Collaborations}
}

// Collaborations implements the collaboration service, like *collab.Service. The context
// carries the caller and errors are reported as described at Handler. Implementations are
// safe for concurrent use.
type Collaborations interface {
	teamv1.CollaborationServiceServer
	// Delete calls remove, which deletes the team, once no collaborations of the team are
	// running. With force it stops those that run.
	Delete(ctx context.Context, team string, force bool, remove func(context.Context) error) error
	// Describe adds what the collaborations of a team are doing to the team's status.
	Describe(ctx context.Context, team string, to *teamv1.GetTeamStatusResponse) error
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
