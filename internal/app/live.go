// Package app puts the parts together: a definition and its agents, the task
// handler, the server and its listeners. It is the only place that knows them all.
package app

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/upstream"
)

// Definitions keep what runs are tied to; the stores do.
type Definitions interface {
	// PutDefinition keeps a content under its name. What is known is not changed.
	PutDefinition(ctx context.Context, revision string, body []byte) error
	// Definition returns a content. a2a.ErrNotFound.
	Definition(ctx context.Context, revision string) ([]byte, error)
}

// Live is the agents that are served. A reload swaps all of them at once; a run
// goes on with the definition that it began with, also after a restart. Safe for
// concurrent use.
type Live struct {
	log         *zap.Logger
	egress      *egress.Dialer
	calls       *upstream.Guard // of all definitions: a reload makes no agent work again
	definitions Definitions
	clock       func() time.Time
	current     atomic.Pointer[revision] // stored under mu
	restoring   chan struct{}            // held by who restores a definition

	mu     sync.Mutex
	others []*revision // that runs use or may use again, the last used last; guarded by mu
}

var _ a2a.Pinner = (*Live)(nil)

// NewLive builds the agents of a definition.
func NewLive(def *config.Config, definitions Definitions, log *zap.Logger) (*Live, error) {
	out, err := egress.New(egress.Config{})
	if err != nil {
		return nil, err
	}
	l := &Live{log: log, egress: out, calls: upstream.New(upstream.Config{Log: log}), definitions: definitions, clock: time.Now, restoring: make(chan struct{}, 1)}
	if err := l.Swap(def); err != nil {
		out.Close()
		return nil, err
	}
	return l, nil
}

// Swap builds the agents of another definition and serves those from now on.
// What was served before is closed when no run is driven by it any more. On an
// error nothing changes.
func (l *Live) Swap(def *config.Config) error {
	r, err := l.newRevision(def, nil)
	if err != nil {
		return err
	}
	l.mu.Lock()
	if old := l.current.Load(); old != nil {
		l.others = append(l.others, old)
	}
	for _, old := range l.others {
		old.retired = true // restored ones too: they have the connections of the file before
	}
	l.current.Store(r)
	idle := l.sweep()
	l.mu.Unlock()
	l.closeAll(idle)
	return nil
}

// Get returns an agent by its id, or an *agent.Error.
func (l *Live) Get(id string) (agent.Agent, error) { return l.current.Load().registry.Get(id) }

// IDs returns the ids of all agents, sorted.
func (l *Live) IDs() []string { return l.current.Load().registry.IDs() }

// Health returns how an agent is, as last known; it never blocks.
func (l *Live) Health(id string) *teamv1.Health { return l.current.Load().registry.Health(id) }

// Definition returns what is served.
func (l *Live) Definition() *config.Config { return l.current.Load().def }

// served is Definition; nil before there is one.
func (l *Live) served() *config.Config {
	if r := l.current.Load(); r != nil {
		return r.def
	}
	return nil
}

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

// Close closes everything that is still open. No run may be left.
func (l *Live) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, r := range append(l.others, l.current.Load()) {
		errs = append(errs, r.close())
	}
	l.others = nil
	l.egress.Close()
	return errors.Join(errs...)
}
