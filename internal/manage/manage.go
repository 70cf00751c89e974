// Package manage holds the agents that are served, by id, and creates, changes and deletes teams and agents while the server
// runs. Those are stored in the catalog of the store, and every replica serves them in addition to those of the
// configuration file.
package manage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/catalog"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/logs"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/agent"
)

// pollInterval is how often the catalog is checked, in case a notification was lost.
const pollInterval = 5 * time.Second

// NotBuilt is the error for an addition that cannot be built.
type NotBuilt struct {
	Addition string
	Agents   map[string]string // the agents that caused it, if known, with the reasons
	Err      error
}

// Error implements error.
func (e *NotBuilt) Error() string { return fmt.Sprintf("building %q: %v", e.Addition, e.Err) }

// Unwrap returns Err.
func (e *NotBuilt) Unwrap() error { return e.Err }

// Config configures a Registry. All fields except Boards, Clock, NewID and Log are required.
type Config struct {
	Store catalog.Store
	// Definitions stores the definitions with which runs have begun.
	Definitions store.Definitions
	// Boards stores the boards of teams; nil means that teams have no boards.
	Boards board.Store
	// File is the configuration file of the server.
	File *config.Config
	// Open says that the server has no authentication: its only caller may use and change everything,
	// and entries may use everything in the file.
	Open bool
	// CheckTimeout is the time limit for checking the definitions that a change concerns; 0 means 30 seconds.
	CheckTimeout time.Duration
	// Clock returns the current time; nil means time.Now.
	Clock func() time.Time
	// NewID returns an id for a team that was created without one; nil means a random id.
	NewID func() string
	// Log receives warnings about entries that cannot be served; nil discards them.
	Log *zap.Logger
}

// Registry holds the agents that are served. A reload, or a change of the catalog, replaces all of them at once; a run
// continues with the definition that it began with, even after a restart. It is safe for concurrent use.
type Registry struct {
	c     Config
	built *revisions

	changing chan struct{} // semaphore: held while changing what is served
	syncing  chan struct{} // semaphore: held while syncing
	syncs    atomic.Int64  // number of syncs that have begun and not failed
	lastSync time.Time     // when the last sync began; guarded by syncing
	making   sync.Map      // keys of teams that are being created, see agent.KeyOf
}

// New returns a registry. It serves the file and the catalog once Refresh is called. Close it after use.
func New(c Config) (*Registry, error) {
	c.CheckTimeout = cmp.Or(c.CheckTimeout, 30*time.Second)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.NewID == nil {
		c.NewID = func() string { return "team-" + strings.ReplaceAll(uuid.NewString(), "-", "") }
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	built, err := newRevisions(c)
	if err != nil {
		return nil, err
	}
	built.served.Store(&state{file: c.File, open: c.Open})
	return &Registry{c: c, built: built, changing: make(chan struct{}, 1), syncing: make(chan struct{}, 1)}, nil
}

// state returns what is served.
func (g *Registry) state() *state { return g.built.served.Load() }

// Run serves the changes of other replicas until ctx ends.
func (g *Registry) Run(ctx context.Context) {
	wake, stop := g.c.Store.WatchCatalog()
	defer stop()
	var failing logs.Condition
	for {
		timer := time.NewTimer(pollInterval)
		select {
		case <-wake:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
		if err := g.Refresh(ctx, nil); ctx.Err() == nil {
			failing.Report(g.c.Log, "cannot serve changes of teams", "changes of teams are served again", err)
		}
	}
}

// lock acquires a semaphore. It fails if ctx ends first.
func lock(ctx context.Context, held chan struct{}) (unlock func(), err error) {
	select {
	case held <- struct{}{}:
		return func() { <-held }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Refresh serves the current catalog, with another configuration file unless file is nil. An entry
// that does not fit the file is not served and is reported in the state ERROR. If Refresh fails,
// nothing changes.
func (g *Registry) Refresh(ctx context.Context, file *config.Config) error {
	unlock, err := lock(ctx, g.changing)
	if err != nil {
		return err
	}
	defer unlock()
	before := g.state()
	if file == nil {
		file = before.file
		if version, err := g.c.Store.CatalogVersion(ctx); err != nil || version == before.version && before.base != nil {
			return storeError(err)
		}
	}
	snap, err := g.c.Store.Catalog(ctx)
	if err != nil {
		return storeError(err)
	}
	next, err := before.with(context.WithoutCancel(ctx), file, snap) // the stored catalog is loaded completely, even if this caller leaves
	if err != nil {
		return err
	}
	p, err := g.prepare(next, func(string) bool { return true })
	if err != nil {
		return err
	}
	g.install(p)
	return nil
}

// prepare builds a state. An entry that cannot be built is left out if may returns true for it.
func (g *Registry) prepare(next *state, may func(id string) bool) (*assembly, error) {
	var base *revision // of the file: it is built once
	for {
		p, err := g.built.build(next, base)
		var not *NotBuilt
		switch {
		case err == nil:
			return p, nil
		case p == nil:
			return nil, err
		case !errors.As(err, &not) || !may(not.Addition):
			p.discard()
			return nil, err
		}
		base = p.release()
		p.discard()
		g.c.Log.Warn("a team or agent of the catalog cannot be built", zap.String("id", not.Addition), zap.Error(not.Err))
		next.leaveOut(not.Addition)
	}
}

// install serves a state and logs the entries that are newly left out.
func (g *Registry) install(p *assembly) {
	before := g.state()
	p.serve()
	for id, e := range p.entries {
		old := before.entries[id]
		switch {
		case e.def == nil && (old == nil || old.def != nil):
			g.c.Log.Warn("a team or agent of the catalog cannot be served with this file", zap.String("id", id), zap.Error(e.faults))
		case e.def != nil && (old == nil || old.def == nil || old.Version != e.Version):
			for _, u := range e.def.Uncounted() {
				if u.Limited == id || u.ByAccount { // those of the file itself were rejected
					g.c.Log.Warn(u.String()+", so what it costs is not counted; "+u.Fix(), zap.String("id", id))
				}
			}
		}
	}
}

// current returns the state of the current catalog, which may not be served yet.
func (g *Registry) current(ctx context.Context) (*state, error) {
	now := g.state()
	version, err := g.c.Store.CatalogVersion(ctx)
	if err != nil || version == now.version {
		return now, storeError(err)
	}
	snap, err := g.c.Store.Catalog(ctx)
	if err != nil {
		return nil, storeError(err)
	}
	return now.with(context.WithoutCancel(ctx), now.file, snap)
}

func storeError(err error) error {
	if err == nil || errors.Is(err, catalog.ErrChanged) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if errors.Is(err, runs.ErrBusy) { // the team to delete has active collaborations
		return runs.StoreError("", err)
	}
	return &agent.Error{
		Reason: agent.ReasonStoreUnavailable, Code: agent.CodeUnavailable, Retry: true, RetryAfter: time.Second,
		Message: "the store is unavailable; try again", Err: err,
	}
}
