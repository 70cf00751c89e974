package manage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/catalog"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
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

// Manager creates, changes and deletes the teams and agents of a registry, and describes them. It implements TeamService and
// RegistryService, and is safe for concurrent use.
type Manager struct {
	reg *Registry
	c   Config
}

// NewManager returns a manager of what a registry serves.
func NewManager(g *Registry) *Manager { return &Manager{reg: g, c: g.c} }

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
	now, err := m.reg.current(ctx)
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
	unlock, err := lock(ctx, m.reg.changing)
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
	now, err := m.reg.current(ctx)
	if err != nil {
		return err
	}
	next, what, err := m.next(ctx, c, now)
	if err != nil {
		return err
	}
	p, err := m.reg.prepare(next, func(id string) bool { return now.entries[id] != nil && now.entries[id].def == nil })
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
	m.reg.install(p)
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
	agents, done, err := m.reg.built.buildUnserved(def, ids)
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
