package manage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
	"github.com/agentteams/team-server/pkg/upstream"
)

// registry has what all revisions share, and those that are not served but used. The ones that are served are in the state.
type registry struct {
	egress    *egress.Dialer  // makes the connections whose address the file names
	guarded   *egress.Dialer  // makes all other connections
	guard     *egress.Guard   // of guarded, with the addresses that the file allows
	calls     *upstream.Guard // so that a reload does not reset circuit breakers
	restoring chan struct{}   // semaphore of size 1: one definition is restored at a time

	mu     sync.Mutex
	others []*revision // not served, but used by runs or kept for reuse; most recently used last; guarded by mu
}

var (
	_ a2a.Finder  = (*Manager)(nil)
	_ a2a.Pinner  = (*Manager)(nil)
	_ a2a.Access  = (*Manager)(nil)
	_ board.Teams = (*Manager)(nil)
)

// newRegistry returns an empty registry.
func newRegistry(c Config) (*registry, error) {
	out, err := egress.New(egress.Config{})
	if err != nil {
		return nil, err
	}
	guard, err := egress.NewGuard()
	if err != nil {
		return nil, err
	}
	guarded, err := egress.New(egress.Config{Allow: guard.Allow})
	if err != nil {
		return nil, err
	}
	return &registry{egress: out, guarded: guarded, guard: guard, calls: upstream.New(upstream.Config{Log: c.Log}), restoring: make(chan struct{}, 1)}, nil
}

// Revision returns the revision of the definition of an agent that is served, or "". It covers everything that the agent
// reaches.
func (m *Manager) Revision(id string) string { return m.served.Load().pinned(id).revision(id) }

// Get returns an agent by its id. The error is an *agent.Error.
func (m *Manager) Get(id string) (agent.Agent, error) { return m.served.Load().of(id).registry.Get(id) }

// Find implements a2a.Finder.
func (m *Manager) Find(ctx context.Context, id string) (agent.Agent, error) {
	if m.served.Load().pinned(id) == nil { // another replica may have added it
		if err := m.Sync(ctx); err != nil {
			return nil, err
		}
	}
	return m.Get(id)
}

// IDs returns the ids of all agents that are served, sorted.
func (m *Manager) IDs() []string { return slices.Sorted(maps.Keys(m.served.Load().by)) }

// Served returns the configuration that is served: the file and all additions combined. It is nil before the first Refresh.
func (m *Manager) Served() *config.Config { return m.served.Load().def }

// InFile reports whether the configuration file that is served defines an agent or team.
func (m *Manager) InFile(id string) bool {
	def := m.Served()
	defined := def.Server.GetTeams()[id] != nil || def.Server.GetAgents()[id] != nil
	return defined && def.Addition(id) == ""
}

// Secrets returns the secrets of all configurations that are in use: of the one that is served, and of those with which
// runs continue that began before it.
func (m *Manager) Secrets() []secret.Secret {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.Served().Secrets()
	for _, r := range m.others {
		all = append(all, slices.DeleteFunc(r.def.Secrets(), func(s secret.Secret) bool { return slices.ContainsFunc(all, s.Equal) })...)
	}
	return all
}

// PlanOf implements board.Teams.
func (m *Manager) PlanOf(id, revision string) (items []*teamv1.WorkItem) {
	if revision == "" || m.Revision(id) != revision {
		return nil
	}
	for _, s := range modes.Plan(m.Served().Server.GetTeams()[id]) {
		it := &teamv1.WorkItem{Title: s.ID, DependsOn: s.After}
		if s.Member != "" { // otherwise a person does it
			it.Assignee = &teamv1.BoardActor{Agent: s.Member}
		}
		items = append(items, it)
	}
	return items
}

// BoardOf implements board.Teams.
func (m *Manager) BoardOf(ctx context.Context, id string) (members []string, has bool, err error) {
	t, err := m.servedTeam(ctx, id)
	return modes.MemberIDs(t), t.GetBoard(), err
}

// Definition returns a team as it was when a run began, or the one that is served if revision is empty. A stored definition
// is returned even if it can no longer be built, and nil if it was deleted. It implements collab.Teams.
func (m *Manager) Definition(ctx context.Context, id, revision string) (*teamv1.TeamConfig, error) {
	if revision == "" || revision == m.Revision(id) {
		return m.Served().Server.GetTeams()[id], nil
	}
	body, err := m.c.Definitions.Definition(ctx, revision)
	switch {
	case errors.Is(err, runs.ErrNotFound):
		return nil, nil //nolint:nilnil // the definition was deleted
	case err != nil:
		return nil, runs.StoreError(id, err)
	}
	return config.TeamOf(body, id), nil
}

// guardOf returns the guard of connections whose addresses the file does not name.
func guardOf(def *config.Config) (*egress.Guard, error) {
	g, err := egress.NewGuard(def.EgressAllow()...)
	if err != nil {
		return nil, fmt.Errorf("server.egress.allow: %w", err)
	}
	return g, nil
}

// Close closes all agents. No run may be active.
func (m *Manager) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, r := range append(m.others, m.served.Load().revisions()...) {
		errs = append(errs, r.close())
	}
	m.others = nil
	m.egress.Close()
	m.guarded.Close()
	return errors.Join(errs...)
}
