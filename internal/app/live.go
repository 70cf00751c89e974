// Package app puts the parts together: a definition and its agents, the task
// handler, the server and its listeners. It is the only place that knows them all.
package app

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/build"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
)

// Live is the agents that are served. A reload swaps all of them at once: runs
// go on with the agents they began with. Safe for concurrent use.
type Live struct {
	log     *zap.Logger
	egress  *egress.Dialer
	current atomic.Pointer[revision]

	mu  sync.Mutex
	all []*revision // in the order they were loaded; guarded by mu
}

// revision is one definition and what was built from it.
type revision struct {
	def      *config.Config
	registry *manager.Manager
	agents   *build.Agents
}

// NewLive builds the agents of a definition.
func NewLive(def *config.Config, log *zap.Logger) (*Live, error) {
	out, err := egress.New(egress.Config{})
	if err != nil {
		return nil, err
	}
	l := &Live{log: log, egress: out}
	if err := l.Swap(def); err != nil {
		out.Close()
		return nil, err
	}
	return l, nil
}

// Swap builds the agents of another definition and serves those from now on. On
// an error nothing changes.
func (l *Live) Swap(def *config.Config) error {
	r := &revision{def: def, registry: manager.New(manager.Config{Log: l.log})}
	var err error
	r.agents, err = build.Register(build.Config{Definition: def, Registry: r.registry, Egress: l.egress, Log: l.log})
	if err != nil {
		r.registry.Close()
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r)
	l.current.Store(r)
	return nil
}

// Get returns an agent by its id, or an *agent.Error.
func (l *Live) Get(id string) (agent.Agent, error) { return l.current.Load().registry.Get(id) }

// IDs returns the ids of all agents, sorted.
func (l *Live) IDs() []string { return l.current.Load().registry.IDs() }

// Definition returns what is served.
func (l *Live) Definition() *config.Config { return l.current.Load().def }

// Default returns the agent that calls without a tenant reach: the configured
// one, else the only team, else none.
func (l *Live) Default() string {
	server := l.Definition().Server
	if id := server.GetServer().GetDefaultAgent(); id != "" {
		return id
	}
	if ids := l.Teams(); len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// Teams returns the ids of the teams, sorted; without any those of the agents.
func (l *Live) Teams() []string {
	var ids []string
	for id := range l.Definition().Server.GetTeams() {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return l.IDs()
	}
	slices.Sort(ids)
	return ids
}

// Close closes everything that was ever served. No run may be left.
func (l *Live) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, r := range l.all {
		r.registry.Close()
		errs = append(errs, r.agents.Close())
	}
	l.egress.Close()
	return errors.Join(errs...)
}
