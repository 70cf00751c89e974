package serve

import (
	"context"
	"errors"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/manage"
	"github.com/agentteams/team-server/pkg/a2a"
)

// definitions returns the teams that are served, and teams as they were when a run began.
type definitions struct {
	*manage.Manager
	live *Live
}

// Definition implements collab.Teams. A stored definition is returned even if it can no longer be
// built.
func (d definitions) Definition(ctx context.Context, id, revision string) (*teamv1.TeamConfig, error) {
	if revision == "" || revision == d.live.Revision(id) {
		return d.live.Definition().Server.GetTeams()[id], nil
	}
	body, err := d.live.definitions.Definition(ctx, revision)
	switch {
	case errors.Is(err, a2a.ErrNotFound):
		return nil, nil //nolint:nilnil // the definition was deleted
	case err != nil:
		return nil, a2a.StoreError(id, err)
	}
	return config.TeamOf(body, id), nil
}
