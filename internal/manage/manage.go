// Package manage holds the agents that are served, by id, and creates, changes and deletes teams and agents while the server
// runs. Those are stored in the catalog of the store, and every replica serves them in addition to those of the
// configuration file.
package manage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/catalog"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/logs"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// pollInterval is how often the catalog is checked, in case a notification was
	// lost.
	pollInterval = 5 * time.Second
	// maxDocument is the maximum size of a document, in bytes, maxEntries the maximum number of
	// documents, and maxOfAccount that of one account.
	maxDocument  = 1 << 20
	maxEntries   = 10_000
	maxOfAccount = 5_000
	// tries is the number of attempts to make a change if others interfere.
	tries = 20
	// setUp is the time limit for reaching the remote agents of a change.
	setUp = 10 * time.Second
)

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

// Config configures a Manager. All fields except Boards, Clock, NewID and Log are required.
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

// Manager is the registry of the agents that are served, and manages them. A reload, or a change of the catalog, replaces
// all of them at once; a run continues with the definition that it began with, even after a restart. It is safe for
// concurrent use.
type Manager struct {
	c Config
	*registry

	changing chan struct{}         // semaphore: held while changing what is served
	syncing  chan struct{}         // semaphore: held while syncing
	syncs    atomic.Int64          // number of syncs that have begun and not failed
	lastSync time.Time             // when the last sync began; guarded by syncing
	served   atomic.Pointer[state] // stored while holding changing and mu
	making   sync.Map              // keys of teams that are being created, see agent.KeyOf
}

// New returns a manager. It serves the file and the catalog once Refresh is called. Close it after use.
func New(c Config) (*Manager, error) {
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
	r, err := newRegistry(c)
	if err != nil {
		return nil, err
	}
	m := &Manager{c: c, registry: r, changing: make(chan struct{}, 1), syncing: make(chan struct{}, 1)}
	m.served.Store(&state{file: c.File, open: c.Open})
	return m, nil
}

// Run serves the changes of other replicas until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	wake, stop := m.c.Store.WatchCatalog()
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
		if err := m.Refresh(ctx, nil); ctx.Err() == nil {
			failing.Report(m.c.Log, "cannot serve changes of teams", "changes of teams are served again", err)
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
func (m *Manager) Refresh(ctx context.Context, file *config.Config) error {
	unlock, err := lock(ctx, m.changing)
	if err != nil {
		return err
	}
	defer unlock()
	before := m.served.Load()
	if file == nil {
		file = before.file
		if version, err := m.c.Store.CatalogVersion(ctx); err != nil || version == before.version && before.base != nil {
			return storeError(err)
		}
	}
	snap, err := m.c.Store.Catalog(ctx)
	if err != nil {
		return storeError(err)
	}
	next, err := before.with(context.WithoutCancel(ctx), file, snap) // the stored catalog is loaded completely, even if this caller leaves
	if err != nil {
		return err
	}
	p, err := m.prepare(next, func(string) bool { return true })
	if err != nil {
		return err
	}
	m.install(p)
	return nil
}

// prepare builds a state. An entry that cannot be built is left out if may returns true for it.
func (m *Manager) prepare(next *state, may func(id string) bool) (*assembly, error) {
	var base *revision // of the file: it is built once
	for {
		p, err := m.build(next, base)
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
		m.c.Log.Warn("a team or agent of the catalog cannot be built", zap.String("id", not.Addition), zap.Error(not.Err))
		next.leaveOut(not.Addition)
	}
}

// install serves a state and logs the entries that are newly left out.
func (m *Manager) install(p *assembly) {
	before := m.served.Load()
	p.serve()
	for id, e := range p.entries {
		old := before.entries[id]
		switch {
		case e.def == nil && (old == nil || old.def != nil):
			m.c.Log.Warn("a team or agent of the catalog cannot be served with this file", zap.String("id", id), zap.Error(e.faults))
		case e.def != nil && (old == nil || old.def == nil || old.Version != e.Version):
			for _, u := range e.def.Uncounted() {
				if u.Limited == id || u.ByAccount { // those of the file itself were rejected
					m.c.Log.Warn(u.String()+", so what it costs is not counted; "+u.Fix(), zap.String("id", id))
				}
			}
		}
	}
}

// change is a change of the catalog.
type change struct {
	// decide returns the change to make to a state.
	decide func(*state) (catalog.Change, error)
	// field returns the request field for a fault of an entry that is put.
	field func(*entry, source.Fault) string
	// dry only checks whether the change is possible.
	dry bool
	// action and subject are what the audit log records.
	action, subject string
}

// change makes a change of the catalog and serves it.
func (m *Manager) change(ctx context.Context, c change) error {
	// Checking remote agents may take a while, so it is done without blocking other changes.
	now, err := m.current(ctx)
	if err != nil {
		return err
	}
	next, _, err := m.next(ctx, c, now)
	if err == nil {
		err = m.checkRemote(ctx, now, next)
	}
	if err != nil {
		return err
	}
	unlock, err := lock(ctx, m.changing)
	if err != nil {
		return err
	}
	defer unlock()
	for range tries {
		err := m.try(ctx, c)
		if !errors.Is(err, catalog.ErrChanged) {
			return err
		}
	}
	return agent.Errorf(agent.CodeAborted, agent.ReasonVersionConflict, "too many concurrent changes to teams; try again")
}

// current returns the state of the current catalog, which may not be served yet.
func (m *Manager) current(ctx context.Context) (*state, error) {
	now := m.served.Load()
	version, err := m.c.Store.CatalogVersion(ctx)
	if err != nil || version == now.version {
		return now, storeError(err)
	}
	snap, err := m.c.Store.Catalog(ctx)
	if err != nil {
		return nil, storeError(err)
	}
	return now.with(context.WithoutCancel(ctx), now.file, snap)
}

// next returns the state after a change, or the reason why the change is invalid. It takes at most Config.CheckTimeout,
// and ends with ctx.
func (m *Manager) next(ctx context.Context, c change, now *state) (*state, catalog.Change, error) {
	what, err := c.decide(now)
	if err != nil {
		return nil, what, err
	}
	late := agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources,
		"checking the definition, and those that refer to it, took longer than %s; make it smaller, or try again when the server is less busy", m.c.CheckTimeout)
	checking, stop := context.WithTimeoutCause(ctx, m.c.CheckTimeout, late)
	defer stop()
	next, err := now.with(checking, now.file, now.after(what))
	if err != nil {
		return nil, what, err
	}
	return next, what, now.fits(next, what, c.field)
}

// try makes a change once. The error is catalog.ErrChanged if another one was made at the same
// time.
func (m *Manager) try(ctx context.Context, c change) error {
	now, err := m.current(ctx)
	if err != nil {
		return err
	}
	next, what, err := m.next(ctx, c, now)
	if err != nil {
		return err
	}
	p, err := m.prepare(next, func(id string) bool { return now.entries[id] != nil && now.entries[id].def == nil })
	if err != nil {
		return m.notSetUp(err)
	}
	if c.dry {
		p.discard()
		return nil
	}
	version, err := m.c.Store.ChangeCatalog(audit.Record(ctx, m.c.Clock(), c.action, c.subject, nil), now.version, what)
	if err != nil {
		p.discard()
		return storeError(err)
	}
	next.commit(version)
	m.install(p)
	return nil
}

// invalid returns the error for a definition with faults.
func invalid(faults []agent.Violation) error {
	e := a2aerror.Invalid(faults...)
	e.Reason = agent.ReasonInvalidTeamConfig
	return e
}

// violations converts faults to violations; field returns the request field of a fault.
func violations(faults source.Faults, field func(source.Fault) string) []agent.Violation {
	var list []agent.Violation
	for _, f := range faults {
		v := agent.Violation{Field: field(f), Description: f.Message}
		if f.Hint != "" {
			v.Description += "; " + f.Hint
		}
		list = append(list, v)
	}
	return list
}

// checkRemote checks that the remote agents of changed entries can be reached.
func (m *Manager) checkRemote(ctx context.Context, now, next *state) error {
	for id, e := range next.entries {
		if old := now.entries[id]; old != nil && old.Version == e.Version {
			continue
		}
		var remote []string
		for _, id := range e.def.Added(e.ID) {
			if a := e.def.Server.GetAgents()[id]; a.GetA2A() != nil || a.GetGrpc() != nil {
				remote = append(remote, id) // other agents need no check beyond their definition
			}
		}
		if len(remote) > 0 {
			return m.reach(ctx, e.def, remote)
		}
	}
	return nil
}

// reach checks that remote agents can be reached.
func (m *Manager) reach(ctx context.Context, def *config.Config, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, setUp)
	defer cancel()
	agents, done, err := m.buildUnserved(def, ids)
	if err != nil {
		return m.notSetUp(err)
	}
	defer done()
	var wg sync.WaitGroup
	causes := make([]*agent.Error, len(ids))
	for i, id := range ids {
		wg.Go(func() {
			if _, err := agents[id].Info(ctx); err != nil {
				causes[i] = agent.AsError(err)
			}
		})
	}
	wg.Wait()
	failed := agent.Errorf(agent.CodeUnavailable, agent.ReasonInitializationFailed, "these agents cannot be set up")
	failed.Retry = true
	for i, cause := range causes {
		if cause == nil {
			continue
		}
		if !cause.Retry || !cause.Fresh && cause.RetryAfter == 0 { // the agent does not say that the error is temporary
			failed.Code, failed.Retry = agent.CodeFailedPrecondition, false
		}
		failed = failed.With(ids[i], cause.Message)
		failed.Message += fmt.Sprintf("; %q: %s", ids[i], cause.Message)
	}
	if len(failed.Details) == 0 {
		return nil
	}
	return failed
}

// notSetUp returns the error for agents that have a valid definition but cannot be built.
func (m *Manager) notSetUp(err error) error {
	m.c.Log.Warn("agents cannot be set up", zap.Error(err))
	failed := agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonInitializationFailed, "these agents cannot be set up").Because(err)
	var not *NotBuilt
	if errors.As(err, &not) {
		for _, id := range slices.Sorted(maps.Keys(not.Agents)) {
			failed = failed.With(id, not.Agents[id])
			failed.Message += fmt.Sprintf("; %q: %s", id, not.Agents[id])
		}
	}
	if failed.Details == nil {
		failed.Message = "the agents or their tools cannot be set up"
	}
	failed.Message += "; see the log of the server"
	return failed
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
