package manage

import (
	"context"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/pkg/agent"
)

// syncGap is the minimum time between two syncs: requests for unknown ids cost the store at most a
// hundred small queries a second, however many there are.
const syncGap = 10 * time.Millisecond

// Sync serves the changes that other replicas had made when it was called. Concurrent callers share
// one sync. The error is STORE_UNAVAILABLE if the store fails.
func (g *Registry) Sync(ctx context.Context) error {
	called := g.syncs.Load()
	unlock, err := lock(ctx, g.syncing)
	if err != nil {
		return err
	}
	defer unlock()
	if g.syncs.Load() > called {
		return nil // another sync has begun since the call and succeeded
	}
	if err := agent.Sleep(ctx, syncGap-time.Since(g.lastSync)); err != nil {
		return err
	}
	g.syncs.Add(1)
	g.lastSync = time.Now()
	if err := g.catchUp(ctx); err != nil {
		g.syncs.Add(-1)
		return err
	}
	return nil
}

// catchUp is like Refresh, but does not wait for a change in progress if the catalog is unchanged.
func (g *Registry) catchUp(ctx context.Context) error {
	version, err := g.c.Store.CatalogVersion(ctx)
	if err != nil || version == g.state().version {
		return storeError(err)
	}
	return g.Refresh(ctx, nil)
}

// seek calls Sync if an id is not known, because another replica may have created it.
func (g *Registry) seek(ctx context.Context, id string) error {
	if g.Served().Used[id] || g.state().entries[id] != nil {
		return nil
	}
	return g.Sync(ctx)
}

// servedTeam returns the configuration of a team that is served. The error is TEAM_NOT_FOUND if there
// is no such team, or the caller of ctx, if it has one, may not use it.
func (g *Registry) servedTeam(ctx context.Context, id string) (*teamv1.TeamConfig, error) {
	if err := g.seek(ctx, id); err != nil {
		return nil, err
	}
	t := g.Served().Server.GetTeams()[id]
	if who, ok := identity.CallerOf(ctx); t != nil && (!ok || g.Allows(who, id)) {
		return t, nil
	}
	return nil, teamNotFound(id)
}
