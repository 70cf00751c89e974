// Package manage makes, changes and deletes teams and agents while the server runs:
// they are kept in the catalog of the store, beside those of the server's file, and
// every replica serves both.
package manage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/catalog"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// lookEvery is how often the catalog is looked at, in case that nobody said that
	// it has changed.
	lookEvery = 5 * time.Second
	// maxDocument bounds a document, in bytes.
	maxDocument = 1 << 20
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
	// Revision names the definition of an agent with all that it reaches.
	Revision(id string) string
	// Prepare builds the agents of a definition.
	Prepare(def *config.Config) (Prepared, error)
}

// Prepared is a definition whose agents are built. It is used once: Serve or Discard.
type Prepared interface {
	Agent(id string) (agent.Agent, error)
	// Serve serves it from now on.
	Serve()
	// Discard closes it.
	Discard()
}

// Config of a Manager. All but Clock and Log are required.
type Config struct {
	Store catalog.Store
	Live  Live
	// File is what the file of the server says.
	File *config.Config
	// Clock tells the time; unset is time.Now.
	Clock func() time.Time
	// Log says what is served of late; nil is nothing.
	Log *zap.Logger
}

// Manager manages what is served. Safe for concurrent use.
type Manager struct {
	c Config

	// changing is held by who changes what is served.
	changing chan struct{}
	file     *config.Config // guarded by changing

	mu     sync.Mutex
	served catalog.Snapshot         // guarded by mu
	broken map[string]config.Faults // entries that are not served, by id; guarded by mu
}

// New returns a manager. Refresh has it serve what the catalog holds.
func New(c Config) *Manager {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return &Manager{c: c, changing: make(chan struct{}, 1), file: c.File}
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

// lock waits until nobody else changes what is served.
func (m *Manager) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case m.changing <- struct{}{}:
		return func() { <-m.changing }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Refresh serves the catalog as it is now, with another file where there is one. An
// entry that the file has no place for any more is left out, and said to be in ERROR.
// On an error what was served stays.
func (m *Manager) Refresh(ctx context.Context, file *config.Config) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	snap, err := m.c.Store.Catalog(ctx)
	if err != nil {
		return storeError(err)
	}
	if m.version() == snap.Version && file == nil {
		return nil
	}
	if file == nil {
		file = m.file
	}
	def, broken, err := load(file, snap.Entries)
	if err != nil {
		return err
	}
	p, err := m.c.Live.Prepare(def)
	if err != nil {
		return err
	}
	m.file = file
	m.install(p, snap, broken)
	return nil
}

func (m *Manager) version() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.served.Version
}

func (m *Manager) install(p Prepared, snap catalog.Snapshot, broken map[string]config.Faults) {
	p.Serve()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.served, m.broken = snap, broken
	for id, faults := range broken {
		m.c.Log.Warn("a team or agent of the catalog cannot be served with this file", zap.String("id", id), zap.Error(faults))
	}
}

// load reads a file with entries; those that do not fit are left out.
func load(file *config.Config, entries []catalog.Entry) (def *config.Config, broken map[string]config.Faults, err error) {
	broken = map[string]config.Faults{}
	for {
		def, err = file.With(additions(entries, broken))
		var faults config.Faults
		if err == nil || !errors.As(err, &faults) {
			return def, broken, err
		}
		found := false
		for _, f := range faults {
			if slices.ContainsFunc(entries, func(e catalog.Entry) bool { return e.ID == f.File }) {
				broken[f.File] = append(broken[f.File], f)
				found = true
			}
		}
		if !found {
			return nil, nil, err
		}
	}
}

func additions(entries []catalog.Entry, without map[string]config.Faults) []config.Addition {
	var list []config.Addition
	for _, e := range entries {
		if without[e.ID] == nil {
			list = append(list, config.Addition{Name: e.ID, Data: e.Data})
		}
	}
	return list
}

// change makes a change of the catalog and serves it. decide says what it is, of the
// catalog as it is then; dry leaves it at finding out whether it could be made.
func (m *Manager) change(ctx context.Context, dry bool, decide func(catalog.Snapshot) (catalog.Change, error)) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for range tries {
		err := m.try(ctx, dry, decide)
		if !errors.Is(err, catalog.ErrChanged) {
			return err
		}
	}
	return agent.Errorf(agent.CodeAborted, agent.ReasonVersionConflict, "others change teams all the time; try again")
}

func (m *Manager) try(ctx context.Context, dry bool, decide func(catalog.Snapshot) (catalog.Change, error)) error {
	snap, err := m.c.Store.Catalog(ctx)
	if err != nil {
		return storeError(err)
	}
	c, err := decide(snap)
	if err != nil {
		return err
	}
	next := apply(snap, c)
	def, broken, err := load(m.file, next.Entries)
	if err != nil {
		return err
	}
	if err := m.fits(snap, c, broken); err != nil {
		return err
	}
	p, err := m.c.Live.Prepare(def)
	if err != nil {
		return err
	}
	if err := m.ready(ctx, def, p, c); err != nil || dry {
		p.Discard()
		return err
	}
	version, err := m.c.Store.ChangeCatalog(ctx, snap.Version, c)
	if err != nil {
		p.Discard()
		return storeError(err)
	}
	next.Version = version
	for i, e := range next.Entries {
		if e.Version == 0 {
			next.Entries[i].Version = version
		}
	}
	m.install(p, next, broken)
	return nil
}

// apply is a catalog after a change.
func apply(snap catalog.Snapshot, c catalog.Change) catalog.Snapshot {
	var next []catalog.Entry
	for _, e := range snap.Entries {
		gone := slices.Contains(c.Delete, e.ID) || slices.ContainsFunc(c.Put, func(p catalog.Entry) bool { return p.ID == e.ID })
		if !gone {
			next = append(next, e)
		}
	}
	next = append(next, c.Put...)
	slices.SortFunc(next, func(a, b catalog.Entry) int { return strings.Compare(a.ID, b.ID) })
	return catalog.Snapshot{Version: snap.Version, Entries: next}
}

// fits finds out whether a change leaves nothing out that was served or is put.
func (m *Manager) fits(snap catalog.Snapshot, c catalog.Change, broken map[string]config.Faults) error {
	for _, e := range c.Put {
		if faults := broken[e.ID]; faults != nil {
			return invalid(faults)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range snap.Entries {
		if faults := broken[e.ID]; faults != nil && m.broken[e.ID] == nil {
			return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig,
				"%q needs what this takes away: %s; change that first", e.ID, faults[0].Message)
		}
	}
	return nil
}

// invalid is the error for a document with faults.
func invalid(faults config.Faults) error {
	e := &a2a.Error{Reason: agent.ReasonInvalidTeamConfig, Code: agent.CodeInvalidArgument}
	var texts []string
	for _, f := range faults {
		description := f.Message
		if f.Hint != "" {
			description += "; " + f.Hint
		}
		field := fmt.Sprintf("yaml:%d:%d", f.Line, f.Col)
		e.Violations = append(e.Violations, a2a.Violation{Field: field, Description: description})
		texts = append(texts, field+" "+description)
	}
	e.Message = strings.Join(texts, "\n")
	return e
}

// ready finds out whether the agents that a change brings are there (R-001-15).
func (m *Manager) ready(ctx context.Context, def *config.Config, p Prepared, c catalog.Change) error {
	ctx, cancel := context.WithTimeout(ctx, setUp)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	failing := map[string]string{}
	for id := range def.Used {
		came := slices.ContainsFunc(c.Put, func(e catalog.Entry) bool { return e.ID == def.Addition(id) })
		a := def.Server.GetAgents()[id]
		if !came || a.GetA2A() == nil && a.GetGrpc() == nil {
			continue // its definition is all there is to it
		}
		wg.Go(func() {
			if why := absent(ctx, p, id); why != "" {
				mu.Lock()
				defer mu.Unlock()
				failing[id] = why
			}
		})
	}
	wg.Wait()
	if len(failing) == 0 {
		return nil
	}
	e := agent.Errorf(agent.CodeUnavailable, agent.ReasonInitializationFailed, "%d of the agents cannot be set up", len(failing))
	e.Retry = true
	for id, why := range failing {
		e = e.With(id, why)
	}
	return e
}

// absent says why an agent cannot be reached; empty: it can.
func absent(ctx context.Context, p Prepared, id string) string {
	a, err := p.Agent(id)
	if err == nil {
		_, err = a.Info(ctx)
	}
	if err != nil {
		return agent.AsError(err).Message
	}
	return ""
}

func storeError(err error) error {
	if errors.Is(err, catalog.ErrChanged) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &agent.Error{
		Reason: agent.ReasonStoreUnavailable, Code: agent.CodeUnavailable, Retry: true, RetryAfter: time.Second,
		Message: "the store is not available; try again", Err: err,
	}
}
