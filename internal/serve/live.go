// Package serve connects the parts of the server: it builds the agents of a configuration, opens
// the store, listens, and replaces agents while the server runs. It is the one place that knows all
// concrete types.
package serve

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/manage"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
	"github.com/agentteams/team-server/pkg/upstream"
)

// Live holds the agents that are served. A reload replaces all of them at once; a run continues
// with the definition that it began with, even after a restart. It is safe for concurrent use.
type Live struct {
	log         *zap.Logger
	egress      *egress.Dialer  // makes the connections whose address the file names
	guarded     *egress.Dialer  // makes all other connections
	guard       *egress.Guard   // of guarded, with the addresses that the file allows
	calls       *upstream.Guard // shared by all definitions, so that a reload does not reset circuit breakers
	definitions store.Definitions
	boards      board.Store
	clock       func() time.Time
	current     atomic.Pointer[servedSet] // stored under mu
	restoring   chan struct{}             // semaphore of size 1: one definition is restored at a time

	mu     sync.Mutex
	others []*revision // not served, but used by runs or kept for reuse; most recently used last; guarded by mu
}

var (
	_ a2a.Pinner  = (*Live)(nil)
	_ manage.Live = (*Live)(nil)
)

// NewLive builds the agents of a configuration. boards stores the boards of teams; nil means that
// teams have no boards.
func NewLive(def *config.Config, definitions store.Definitions, boards board.Store, log *zap.Logger) (*Live, error) {
	out, err := egress.New(egress.Config{})
	if err != nil {
		return nil, err
	}
	guard, err := guardOf(def)
	if err != nil {
		return nil, err
	}
	guarded, err := egress.New(egress.Config{Allow: guard.Allow})
	if err != nil {
		return nil, err
	}
	l := &Live{log: log, egress: out, guarded: guarded, guard: guard, calls: upstream.New(upstream.Config{Log: log}), definitions: definitions, boards: boards, clock: time.Now, restoring: make(chan struct{}, 1)}
	if err := l.Swap(def); err != nil {
		out.Close()
		guarded.Close()
		return nil, err
	}
	return l, nil
}

// Swap builds the agents of another configuration and serves only those from now on. The previous
// agents are closed once no run uses them. If it fails, nothing changes.
func (l *Live) Swap(def *config.Config) error {
	p, err := l.Prepare(def, nil)
	if err != nil {
		return err
	}
	p.Serve()
	return nil
}

// Revision returns the revision of the definition of an agent that is served, or "".
func (l *Live) Revision(id string) string { return l.current.Load().pinned(id).revision(id) }

// Get returns an agent by id. The error is an *agent.Error.
func (l *Live) Get(id string) (agent.Agent, error) { return l.current.Load().of(id).registry.Get(id) }

// Health returns the last known health of an agent. It does not block.
func (l *Live) Health(id string) *teamv1.Health { return l.current.Load().of(id).registry.Health(id) }

// IDs returns the ids of all agents, sorted.
func (l *Live) IDs() []string { return slices.Sorted(maps.Keys(l.current.Load().by)) }

// Definition returns the configuration that is served.
func (l *Live) Definition() *config.Config { return l.current.Load().def }

// inFile reports whether the configuration file that is served defines an agent or team.
func (l *Live) inFile(id string) bool {
	def := l.Definition()
	defined := def.Server.GetTeams()[id] != nil || def.Server.GetAgents()[id] != nil
	return defined && def.Addition(id) == ""
}

// secrets returns the secrets of all configurations that are in use: of the one that is served, and of those with which
// runs continue that began before it.
func (l *Live) secrets() []secret.Secret {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.current.Load().def.Secrets()
	for _, r := range l.others {
		all = append(all, slices.DeleteFunc(r.def.Secrets(), func(s secret.Secret) bool { return slices.ContainsFunc(all, s.Equal) })...)
	}
	return all
}

// PlanOf implements board.Teams.
func (l *Live) PlanOf(id, revision string) (items []*teamv1.WorkItem) {
	if revision == "" || l.Revision(id) != revision {
		return nil
	}
	for _, s := range config.Plan(l.Definition().Server.GetTeams()[id]) {
		it := &teamv1.WorkItem{Title: s.ID, DependsOn: s.After}
		if s.Member != "" { // otherwise a person does it
			it.Assignee = &teamv1.BoardActor{Agent: s.Member}
		}
		items = append(items, it)
	}
	return items
}

// served is like Definition but returns nil before the first Swap.
func (l *Live) served() *config.Config {
	if s := l.current.Load(); s != nil {
		return s.def
	}
	return nil
}

// Default returns the agent that handles calls without a tenant, or "".
func (l *Live) Default() string { return defaultAgent(l.Definition()) }

// Teams returns the ids of the teams, sorted. Without teams, it returns the ids of the agents.
func (l *Live) Teams() []string { return teamsOf(l.Definition()) }

// teamsOf returns the ids of the teams of a configuration, sorted. Without teams, it returns the ids of the agents
// that are served.
func teamsOf(def *config.Config) []string {
	if teams := def.Server.GetTeams(); len(teams) > 0 {
		return slices.Sorted(maps.Keys(teams))
	}
	return slices.Sorted(maps.Keys(def.Used))
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
func (l *Live) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, r := range append(l.others, l.current.Load().revisions()...) {
		errs = append(errs, r.close())
	}
	l.others = nil
	l.egress.Close()
	l.guarded.Close()
	return errors.Join(errs...)
}
