package serve

import (
	"context"

	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/manage"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// agents finds the agents that are served, including teams that another replica has just added.
type agents struct {
	*Live
	teams *manage.Manager
}

var (
	_ a2a.Finder  = agents{}
	_ a2a.Pinner  = agents{}
	_ a2a.Access  = agents{}
	_ board.Teams = agents{}
)

// Find implements a2a.Finder.
func (a agents) Find(ctx context.Context, id string) (agent.Agent, error) {
	if a.current.Load().pinned(id) == nil { // another replica may have added it
		if err := a.teams.Sync(ctx); err != nil {
			return nil, err
		}
	}
	return a.Get(id)
}

// Allows implements a2a.Access.
func (a agents) Allows(who a2a.Caller, id string) bool { return a.teams.Allows(who, id) }

// AllowsRuns implements a2a.Access.
func (a agents) AllowsRuns(account, id string) bool { return a.teams.AllowsRuns(account, id) }

// AccountOf implements a2a.Access.
func (a agents) AccountOf(id string) string { return a.Definition().AccountOf(id) }

// HasPublicCard implements a2a.Access.
func (a agents) HasPublicCard(id string) bool { return a.teams.HasPublicCard(id) }

// BoardOf implements board.Teams.
func (a agents) BoardOf(ctx context.Context, id string) (members []string, has bool, err error) {
	t, err := a.teams.Served(ctx, id)
	return config.MemberIDs(t), t.GetBoard(), err
}
