package manage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// keepAgain is the interval after which a definition is stored again, because a
	// store may delete definitions that no run refers to.
	keepAgain = 10 * time.Minute
	// maxRestored is the maximum number of restored definitions that stay in memory
	// while no run uses them.
	maxRestored = 16
)

// Pins returns the revisions of an agent and of everything it is built from. The definition is
// stored before Pins returns.
func (g *Registry) Pins(ctx context.Context, id string) (*teamv1.Pins, error) {
	r := g.state().of(id)
	p := r.pinned[id]
	if p == nil {
		_, err := r.registry.Get(id)
		return nil, err
	}
	now := g.c.Clock().UnixNano()
	if kept := p.kept.Load(); kept != 0 && now-kept < int64(keepAgain) {
		return p.pins, nil
	}
	d, err := r.def.Definition(id)
	if err != nil {
		return nil, err
	}
	if err := g.c.Definitions.PutDefinition(ctx, d.Revision, d.Body); err != nil {
		return nil, fmt.Errorf("storing the definition of %q: %w", id, err)
	}
	p.kept.Store(now)
	return p.pins, nil
}

// Pinned returns an agent as it was when a run began. If its definition has changed since, the
// agent is built from the stored definition, with the addresses and keys of the current
// configuration. An agent of another account with the same id is not returned. The caller must call
// release when it no longer uses the agent.
func (g *Registry) Pinned(ctx context.Context, id string, pins *teamv1.Pins) (a agent.Agent, release func(), err error) {
	r, err := g.built.acquire(ctx, id, pins.GetRevisions()[id])
	if err != nil {
		return nil, nil, err
	}
	if a, err = r.registry.Get(id); err != nil {
		g.built.release(r)
		return nil, nil, err
	}
	return a, sync.OnceFunc(func() { g.built.release(r) }), nil
}

// acquire returns the named revision of an agent, from memory or else from the store, and counts a
// use of it. Only one caller at a time reads from the store.
func (rs *revisions) acquire(ctx context.Context, id, name string) (*revision, error) {
	if r := rs.loaded(id, name); r != nil {
		return r, nil
	}
	select {
	case rs.restoring <- struct{}{}:
		defer func() { <-rs.restoring }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if r := rs.loaded(id, name); r != nil {
		return r, nil
	}
	return rs.restore(ctx, id, name)
}

// loaded returns a revision that is in memory and counts a use of it, or returns nil. An empty name
// means the agent that is served, if the configuration file defines it: runs of all others have a name.
func (rs *revisions) loaded(id, name string) *revision {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.served.Load().of(id); name == "" && r.def.AccountOf(id) == "" || r.is(id, name) {
		r.uses++
		return r
	}
	for i, r := range rs.others {
		if !r.retired && r.is(id, name) {
			rs.others = append(slices.Delete(rs.others, i, i+1), r)
			r.uses++
			return r
		}
	}
	return nil
}

// restore builds a stored definition and counts a use of it.
func (rs *revisions) restore(ctx context.Context, id, name string) (*revision, error) {
	if name == "" {
		return nil, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "agent %q is not of this run", id)
	}
	body, err := rs.definitions.Definition(ctx, name)
	switch {
	case errors.Is(err, runs.ErrNotFound):
		return nil, interrupted(id, errors.New("its definition is no longer stored"))
	case err != nil:
		return nil, fmt.Errorf("reading definition %s: %w", name, err)
	case config.Revision(body) != name:
		return nil, agent.Errorf(agent.CodeDataLoss, agent.ReasonDataLoss, "the stored definition of %q is damaged", id)
	}
	served := rs.served.Load()
	def, err := served.def.Restore(body)
	switch {
	case errors.Is(err, config.ErrNewer):
		return nil, fmt.Errorf("definition of %q: %w", id, runs.ErrNewer)
	case err != nil:
		return nil, interrupted(id, err)
	}
	r, err := rs.newRevision(plan{def: def, known: map[string]string{id: name}})
	if err != nil {
		rs.log.Warn("cannot build a stored definition", zap.String("agent", id), zap.String("revision", name), zap.Error(err))
		return nil, interrupted(id, errors.New("its stored definition can no longer be built"))
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.uses, r.retired = 1, rs.served.Load() != served
	rs.others = append(rs.others, r)
	return r, nil
}

// interrupted returns the error of a run that cannot continue.
func interrupted(id string, why error) error {
	return agent.Errorf(agent.CodeInternal, agent.ReasonInterrupted,
		"the run cannot continue with %q as it began: %v", id, why).Because(why)
}

// release ends a use of a revision.
func (rs *revisions) release(r *revision) {
	rs.mu.Lock()
	r.uses--
	idle := rs.sweep()
	rs.mu.Unlock()
	rs.closeAll(idle)
}

// sweep removes revisions that are not in use: all retired ones, and of the others the least
// recently used beyond maxRestored. It returns them; the caller, who holds mu, closes them after
// unlocking.
func (rs *revisions) sweep() []*revision {
	spare := -maxRestored
	for _, r := range rs.others {
		if r.uses == 0 && !r.retired {
			spare++
		}
	}
	var idle []*revision
	for before := -1; len(idle) > before; { // removing a revision may end the last use of others
		before = len(idle)
		rs.others = slices.DeleteFunc(rs.others, func(r *revision) bool {
			kept := !r.retired && spare <= 0
			if r.uses > 0 || kept {
				return false
			}
			if !r.retired {
				spare--
			}
			for _, from := range r.from {
				from.uses--
			}
			idle = append(idle, r)
			return true
		})
	}
	return idle
}

func (rs *revisions) closeAll(idle []*revision) {
	for _, r := range idle {
		if err := r.close(); err != nil {
			rs.log.Warn("closing unused agents", zap.Error(err))
		}
	}
}
