package manage

import (
	"context"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// lookGap is the least time between two looks: ids that are not there cost the store a
// hundred small queries a second at most, however many ask for them.
const lookGap = 10 * time.Millisecond

// Look serves what others had made when it was called. All who call at the same time
// share one look. Error: STORE_UNAVAILABLE.
func (m *Manager) Look(ctx context.Context) error {
	called := m.looks.Load()
	unlock, err := lock(ctx, m.looking)
	if err != nil {
		return err
	}
	defer unlock()
	if m.looks.Load() > called {
		return nil // somebody has begun to look since then, and was lucky
	}
	if err := agent.Sleep(ctx, lookGap-time.Since(m.looked)); err != nil {
		return err
	}
	m.looks.Add(1)
	m.looked = time.Now()
	if err := m.catchUp(ctx); err != nil {
		m.looks.Add(-1)
		return err
	}
	return nil
}

// catchUp is Refresh that waits for no change under way where the catalog is as it was.
func (m *Manager) catchUp(ctx context.Context) error {
	version, err := m.c.Store.CatalogVersion(ctx)
	if err != nil || version == m.served.Load().version {
		return storeError(err)
	}
	return m.Refresh(ctx, nil)
}

// seek looks for an id that is not known here: another replica may have made it.
func (m *Manager) seek(ctx context.Context, id string) error {
	if m.c.Live.Definition().Used[id] || m.served.Load().entries[id] != nil {
		return nil
	}
	return m.Look(ctx)
}

// Served returns a team as it is served. TEAM_NOT_FOUND.
func (m *Manager) Served(ctx context.Context, id string) (*teamv1.TeamConfig, error) {
	if err := m.seek(ctx, id); err != nil {
		return nil, err
	}
	if t := m.c.Live.Definition().Server.GetTeams()[id]; t != nil {
		return t, nil
	}
	return nil, teamNotFound(id)
}
