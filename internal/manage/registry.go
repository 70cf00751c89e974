package manage

import (
	"context"
	"errors"
	"maps"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

var (
	_ a2a.Finder  = (*Registry)(nil)
	_ a2a.Pinner  = (*Registry)(nil)
	_ a2a.Access  = (*Registry)(nil)
	_ board.Teams = (*Registry)(nil)
)

// Revision returns the revision of the definition of an agent that is served, or "". It covers everything that the agent
// reaches.
func (g *Registry) Revision(id string) string { return g.state().pinned(id).revision(id) }

// Get returns an agent by its id. The error is an *agent.Error.
func (g *Registry) Get(id string) (agent.Agent, error) { return g.state().of(id).registry.Get(id) }

// Find implements a2a.Finder.
func (g *Registry) Find(ctx context.Context, id string) (agent.Agent, error) {
	if g.state().pinned(id) == nil { // another replica may have added it
		if err := g.Sync(ctx); err != nil {
			return nil, err
		}
	}
	return g.Get(id)
}

// IDs returns the ids of all agents that are served, sorted.
func (g *Registry) IDs() []string { return slices.Sorted(maps.Keys(g.state().by)) }

// Served returns the configuration that is served: the file and all additions combined. It is nil before the first Refresh.
func (g *Registry) Served() *config.Config { return g.state().def }

// InFile reports whether the configuration file that is served defines an agent or team.
func (g *Registry) InFile(id string) bool {
	def := g.Served()
	defined := def.Server.GetTeams()[id] != nil || def.Server.GetAgents()[id] != nil
	return defined && def.Addition(id) == ""
}

// Secrets returns the secrets of all configurations that are in use: of the one that is served, and of those with which
// runs continue that began before it.
func (g *Registry) Secrets() []secret.Secret {
	g.built.mu.Lock()
	defer g.built.mu.Unlock()
	all := g.Served().Secrets()
	for _, r := range g.built.others {
		all = append(all, slices.DeleteFunc(r.def.Secrets(), func(s secret.Secret) bool { return slices.ContainsFunc(all, s.Equal) })...)
	}
	return all
}

// PlanOf implements board.Teams.
func (g *Registry) PlanOf(id, revision string) (items []*teamv1.WorkItem) {
	if revision == "" || g.Revision(id) != revision {
		return nil
	}
	for _, s := range modes.Plan(g.Served().Server.GetTeams()[id]) {
		it := &teamv1.WorkItem{Title: s.ID, DependsOn: s.After}
		if s.Member != "" { // otherwise a person does it
			it.Assignee = &teamv1.BoardActor{Agent: s.Member}
		}
		items = append(items, it)
	}
	return items
}

// BoardOf implements board.Teams.
func (g *Registry) BoardOf(ctx context.Context, id string) (members []string, has bool, err error) {
	t, err := g.servedTeam(ctx, id)
	return modes.MemberIDs(t), t.GetBoard(), err
}

// Definition returns a team as it was when a run began, or the one that is served if revision is empty. A stored definition
// is returned even if it can no longer be built, and nil if it was deleted. It implements collab.Teams.
func (g *Registry) Definition(ctx context.Context, id, revision string) (*teamv1.TeamConfig, error) {
	if revision == "" || revision == g.Revision(id) {
		return g.Served().Server.GetTeams()[id], nil
	}
	body, err := g.c.Definitions.Definition(ctx, revision)
	switch {
	case errors.Is(err, runs.ErrNotFound):
		return nil, nil //nolint:nilnil // the definition was deleted
	case err != nil:
		return nil, runs.StoreError(id, err)
	}
	return config.TeamOf(body, id), nil
}

// Close closes all agents. No run may be active.
func (g *Registry) Close() error {
	g.built.mu.Lock()
	defer g.built.mu.Unlock()
	var errs []error
	for _, r := range append(g.built.others, g.state().revisions()...) {
		errs = append(errs, r.close())
	}
	g.built.others = nil
	g.built.egress.Close()
	g.built.guarded.Close()
	return errors.Join(errs...)
}
