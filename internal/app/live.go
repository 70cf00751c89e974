// Package app puts the parts together: a definition and its agents, the task
// handler, the server and its listeners. It is the only place that knows them all.
package app

import (
	"context"
	"errors"
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
	boards      board.Store // nil: there are none
	clock       func() time.Time
	current     atomic.Pointer[scene] // stored under mu
	restoring   chan struct{}         // held by who restores a definition

	mu     sync.Mutex
	others []*revision // that runs use or may use again, the last used last; guarded by mu
}

var (
	_ a2a.Pinner  = (*Live)(nil)
	_ manage.Live = (*Live)(nil)
)

// NewLive builds the agents of a definition.
func NewLive(def *config.Config, definitions Definitions, log *zap.Logger) (*Live, error) {
	out, err := egress.New(egress.Config{})
	if err != nil {
		return nil, err
	}
	l := &Live{log: log, egress: out, calls: upstream.New(upstream.Config{Log: log}), definitions: definitions, clock: time.Now, restoring: make(chan struct{}, 1)}
	l.boards, _ = definitions.(board.Store)
	if err := l.Swap(def); err != nil {
		out.Close()
		return nil, err
	}
	return l, nil
}

// Swap builds the agents of another file and serves those alone from now on.
// What was served before is closed when no run is driven by it any more. On an
// error nothing changes.
func (l *Live) Swap(def *config.Config) error {
	p, err := l.Prepare(def, nil)
	if err != nil {
		return err
	}
	p.Serve()
	return nil
}

// Revision names the definition of an agent that is served; empty for none.
func (l *Live) Revision(id string) string { return l.current.Load().pinned(id).revision(id) }

// Get returns an agent by its id, or an *agent.Error.
func (l *Live) Get(id string) (agent.Agent, error) { return l.current.Load().of(id).registry.Get(id) }

// Health returns how an agent is, as last known; it never blocks.
func (l *Live) Health(id string) *teamv1.Health { return l.current.Load().of(id).registry.Health(id) }

// IDs returns the ids of all agents, sorted.
func (l *Live) IDs() []string { return slices.Sorted(maps.Keys(l.current.Load().by)) }

// Definition returns what is served.
func (l *Live) Definition() *config.Config { return l.current.Load().def }

// PlanOf implements board.Teams.
func (l *Live) PlanOf(id, revision string) (items []*teamv1.WorkItem) {
	if revision == "" || l.Revision(id) != revision {
		return nil
	}
	for _, s := range config.Plan(l.Definition().Server.GetTeams()[id]) {
		it := &teamv1.WorkItem{Title: s.ID, DependsOn: s.After}
		if s.Member != "" { // else people do it
			it.Assignee = &teamv1.BoardActor{Agent: s.Member}
		}
		items = append(items, it)
	}
	return items
}

// served is Definition; nil before there is one.
func (l *Live) served() *config.Config {
	if s := l.current.Load(); s != nil {
		return s.def
	}
	return nil
}

// Default returns the agent that calls without a tenant reach: the configured
// one, else the only team of the file, else none.
func (l *Live) Default() string {
	def := l.Definition()
	if id := def.Server.GetServer().GetDefaultAgent(); id != "" {
		return id
	}
	if ids := slices.DeleteFunc(l.Teams(), func(id string) bool { return def.Addition(id) != "" }); len(ids) == 1 {
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
	for _, r := range append(l.others, l.current.Load().revisions()...) {
		errs = append(errs, r.close())
	}
	l.others = nil
	l.egress.Close()
	return errors.Join(errs...)
}
