package app

import (
	"context"

	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/manage"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// agents are those that are served, and those that another replica has just made.
type agents struct {
	*Live
	teams *manage.Manager
}

var (
	_ a2a.Finder  = agents{}
	_ a2a.Pinner  = agents{}
	_ board.Teams = agents{}
)

// Find implements a2a.Finder.
func (a agents) Find(ctx context.Context, id string) (agent.Agent, error) {
	if a.current.Load().pinned(id) == nil {
		if err := a.teams.Look(ctx); err != nil {
			return nil, err
		}
	}
	return a.Get(id)
}

// BoardOf implements board.Teams.
func (a agents) BoardOf(ctx context.Context, id string) (members []string, has bool, err error) {
	t, err := a.teams.Served(ctx, id)
	return config.MemberIDs(t), t.GetBoard(), err
}
