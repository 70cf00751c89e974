// Package manage makes, changes and deletes teams and agents while the server runs:
// they are kept in the catalog of the store, beside those of the server's file, and
// every replica serves both.
package manage

import (
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

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/catalog"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// lookEvery is how often the catalog is looked at, in case that nobody said that
	// it has changed.
	lookEvery = 5 * time.Second
	// maxDocument bounds a document, in bytes, and maxEntries their number.
	maxDocument = 1 << 20
	maxEntries  = 10_000
	// tries is how often a change is made anew when another one came in between.
	tries = 20
	// setUp is how long the agents of a change have to show that they are there.
	setUp = 10 * time.Second
)

// Live is what is served. Safe for concurrent use.
type Live interface {
	// Definition returns what is served.
	Definition() *config.Config
	// Get returns an agent by its id, or an *agent.Error.
	Get(id string) (agent.Agent, error)
	// Health is how an agent was when it was last asked; it is asked in the background.
	Health(id string) *teamv1.Health
	// Revision names the definition of an agent with all that it reaches.
	Revision(id string) string
	// Prepare builds what is to be served: a file, and additions to it by their names.
	// What is served already, as these very configurations, is not built again. One
	// call at a time, until what it returned is served or discarded. *NotBuilt is the
	// error where an addition is to blame.
	Prepare(file *config.Config, additions map[string]*config.Config) (Prepared, error)
	// Alone builds agents that work with no others, to see whether they are there.
	// done closes them.
	Alone(def *config.Config, ids []string) (agents map[string]agent.Agent, done func(), err error)
}

// Prepared is built. It is used once.
type Prepared interface {
	// Serve serves it from now on.
	Serve()
	// Discard closes it.
	Discard()
}

// NotBuilt is the error for an addition that cannot be built.
type NotBuilt struct {
	Addition string
	Agents   map[string]string // those that are to blame, as far as that is known, and for what
	Err      error
}

// Error says which one, and why.
func (e *NotBuilt) Error() string { return fmt.Sprintf("building %q: %v", e.Addition, e.Err) }

// Unwrap returns why.
func (e *NotBuilt) Unwrap() error { return e.Err }

// Config of a Manager. All but Clock, NewID and Log are required.
type Config struct {
	Store catalog.Store
	Live  Live
	// File is what the file of the server says.
	File *config.Config
	// Clock tells the time; unset is time.Now.
	Clock func() time.Time
	// NewID names a team that came without an id; unset is a random one.
	NewID func() string
	// Log says what is served of late; nil is nothing.
	Log *zap.Logger
}

// Manager manages what is served. Safe for concurrent use.
type Manager struct {
	c Config

	changing chan struct{}         // held by who changes what is served
	looking  chan struct{}         // held by who looks for what others have made
	looks    atomic.Int64          // how many have begun and not failed
	looked   time.Time             // when the last one began; used by who holds looking
	served   atomic.Pointer[state] // stored by who holds changing
	making   sync.Map              // ids of teams that are being made
}

// New returns a manager. Refresh has it serve what the catalog holds.
func New(c Config) *Manager {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.NewID == nil {
		c.NewID = func() string { return "team-" + strings.ReplaceAll(uuid.NewString(), "-", "") }
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	m := &Manager{c: c, changing: make(chan struct{}, 1), looking: make(chan struct{}, 1)}
	m.served.Store(&state{file: c.File})
	return m
}

// Run serves what others change, until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	wake, stop := m.c.Store.WatchCatalog()
	defer stop()
	for {
		timer := time.NewTimer(lookEvery)
		select {
		case <-wake:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
		if err := m.Refresh(ctx, nil); err != nil && ctx.Err() == nil {
			m.c.Log.Warn("changed teams are not served yet", zap.Error(err))
		}
	}
}

// lock waits until nobody else holds it.
func lock(ctx context.Context, held chan struct{}) (unlock func(), err error) {
	select {
	case held <- struct{}{}:
		return func() { <-held }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Refresh serves the catalog as it is now, with another file where there is one. An
// entry that the file has no place for any more is left out, and said to be in ERROR.
// On an error what was served stays.
func (m *Manager) Refresh(ctx context.Context, file *config.Config) error {
	unlock, err := lock(ctx, m.changing)
	if err != nil {
		return err
	}
	defer unlock()
	before := m.served.Load()
	if file == nil {
		file = before.file
		if version, err := m.c.Store.CatalogVersion(ctx); err != nil || version == before.version {
			return storeError(err)
		}
	}
	snap, err := m.c.Store.Catalog(ctx)
	if err != nil {
		return storeError(err)
	}
	next := before.with(file, snap)
	p, err := m.prepare(next, func(string) bool { return true })
	if err != nil {
		return err
	}
	m.install(p, next)
	return nil
}

// prepare builds what is to be served. What cannot be built is left out where it may be.
func (m *Manager) prepare(next *state, may func(id string) bool) (Prepared, error) {
	for {
		p, err := m.c.Live.Prepare(next.file, next.definitions())
		var not *NotBuilt
		if !errors.As(err, &not) || !may(not.Addition) {
			return p, err
		}
		m.c.Log.Warn("a team or agent of the catalog cannot be built", zap.String("id", not.Addition), zap.Error(not.Err))
		next.leaveOut(not.Addition)
	}
}

func (m *Manager) install(p Prepared, next *state) {
	before := m.served.Load()
	p.Serve()
	m.served.Store(next)
	for id, e := range next.entries {
		if old := before.entries[id]; e.def == nil && (old == nil || old.def != nil) {
			m.c.Log.Warn("a team or agent of the catalog cannot be served with this file", zap.String("id", id), zap.Error(e.faults))
		}
	}
}

// change is a change of the catalog.
type change struct {
	// decide says what it is, of the catalog as it is then.
	decide func(*state) (catalog.Change, error)
	// field names the place of a fault in what is put.
	field func(*entry, config.Fault) string
	// dry leaves it at finding out whether it could be made.
	dry bool
}

// change makes a change of the catalog and serves it.
func (m *Manager) change(ctx context.Context, c change) error {
	// Whether its agents are there may take a while, during which others make changes.
	now, err := m.current(ctx)
	if err != nil {
		return err
	}
	next, _, err := c.next(now)
	if err == nil {
		err = m.ready(ctx, now, next)
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
	return agent.Errorf(agent.CodeAborted, agent.ReasonVersionConflict, "others change teams all the time; try again")
}

// current is the catalog as it is now, which may not be served yet.
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
	return now.with(now.file, snap), nil
}

// next is what comes of a change, if it can be made.
func (c change) next(now *state) (*state, catalog.Change, error) {
	what, err := c.decide(now)
	if err != nil {
		return nil, what, err
	}
	next := now.with(now.file, now.after(what))
	return next, what, now.fits(next, what, c.field)
}

func (m *Manager) try(ctx context.Context, c change) error {
	now, err := m.current(ctx)
	if err != nil {
		return err
	}
	next, what, err := c.next(now)
	if err != nil {
		return err
	}
	p, err := m.prepare(next, func(id string) bool { return now.entries[id] != nil && now.entries[id].def == nil })
	if err != nil {
		return m.notSetUp(err)
	}
	if c.dry {
		p.Discard()
		return nil
	}
	version, err := m.c.Store.ChangeCatalog(ctx, now.version, what)
	if err != nil {
		p.Discard()
		return storeError(err)
	}
	next.commit(version)
	m.install(p, next)
	return nil
}

// invalid is the error for a definition with faults.
func invalid(faults []a2a.Violation) error {
	e := a2a.Invalid(faults...)
	e.Reason = agent.ReasonInvalidTeamConfig
	return e
}

// violations are the faults of a document, at the fields that they are of.
func violations(faults config.Faults, field func(config.Fault) string) []a2a.Violation {
	var list []a2a.Violation
	for _, f := range faults {
		v := a2a.Violation{Field: field(f), Description: f.Message}
		if f.Hint != "" {
			v.Description += "; " + f.Hint
		}
		list = append(list, v)
	}
	return list
}

// ready finds out whether the agents that a change brings are there.
func (m *Manager) ready(ctx context.Context, now, next *state) error {
	for id, e := range next.entries {
		if old := now.entries[id]; old != nil && old.Version == e.Version {
			continue
		}
		var remote []string
		for _, id := range e.def.Added(e.ID) {
			if a := e.def.Server.GetAgents()[id]; a.GetA2A() != nil || a.GetGrpc() != nil {
				remote = append(remote, id) // of others the definition is all there is to it
			}
		}
		if len(remote) > 0 {
			return m.there(ctx, e.def, remote)
		}
	}
	return nil
}

// there finds out whether remote agents can be reached.
func (m *Manager) there(ctx context.Context, def *config.Config, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, setUp)
	defer cancel()
	agents, done, err := m.c.Live.Alone(def, ids)
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
		if !cause.Retry || !cause.Fresh && cause.RetryAfter == 0 { // it does not say itself that this will pass
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

// notSetUp is the error where something cannot be built whose definition is right.
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
	failed.Message += "; the log of the server says why"
	return failed
}

func storeError(err error) error {
	if err == nil || errors.Is(err, catalog.ErrChanged) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if errors.Is(err, a2a.ErrBusy) { // a team to delete has collaborations
		return a2a.StoreError("", err)
	}
	return &agent.Error{
		Reason: agent.ReasonStoreUnavailable, Code: agent.CodeUnavailable, Retry: true, RetryAfter: time.Second,
		Message: "the store is not available; try again", Err: err,
	}
}
