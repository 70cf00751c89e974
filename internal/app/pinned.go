package app

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
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// keepAgain is after what time a definition is put on record once more: a
	// store may drop one that no run is tied to.
	keepAgain = 10 * time.Minute
	// maxRestored is how many restored definitions stay built while no run is
	// driven by them.
	maxRestored = 16
)

// Pins returns the revisions of an agent and of all that it is built from. Its
// definition is on record when it returns.
func (l *Live) Pins(ctx context.Context, id string) (*teamv1.Pins, error) {
	r := l.current.Load().of(id)
	p := r.pinned[id]
	if p == nil {
		_, err := r.registry.Get(id)
		return nil, err
	}
	now := l.clock().UnixNano()
	if kept := p.kept.Load(); kept != 0 && now-kept < int64(keepAgain) {
		return p.pins, nil
	}
	d, err := r.def.Definition(id)
	if err != nil {
		return nil, err
	}
	if err := l.definitions.PutDefinition(ctx, d.Revision, d.Body); err != nil {
		return nil, fmt.Errorf("keep the definition of %q: %w", id, err)
	}
	p.kept.Store(now)
	return p.pins, nil
}

// Pinned returns an agent as it was when a run began: the one that is served if
// its definition is still that, else one built from the definition on record,
// with the addresses and keys of the file that is served.
func (l *Live) Pinned(ctx context.Context, id string, pins *teamv1.Pins) (a agent.Agent, release func(), err error) {
	r, err := l.acquire(ctx, id, pins.GetRevisions()[id])
	if err != nil {
		return nil, nil, err
	}
	if a, err = r.registry.Get(id); err != nil {
		l.release(r)
		return nil, nil, err
	}
	return a, sync.OnceFunc(func() { l.release(r) }), nil
}

// acquire returns the revision that has an agent as it was, in use. Of many that
// come for one definition together the first builds it.
func (l *Live) acquire(ctx context.Context, id, name string) (*revision, error) {
	if r := l.loaded(id, name); r != nil {
		return r, nil
	}
	select {
	case l.restoring <- struct{}{}:
		defer func() { <-l.restoring }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if r := l.loaded(id, name); r != nil {
		return r, nil
	}
	return l.restore(ctx, id, name)
}

// loaded returns a revision that is there, in use; a run that is tied to none
// takes what is served.
func (l *Live) loaded(id, name string) *revision {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.current.Load().of(id); name == "" || r.is(id, name) {
		r.uses++
		return r
	}
	for i, r := range l.others {
		if !r.retired && r.is(id, name) {
			l.others = append(slices.Delete(l.others, i, i+1), r)
			r.uses++
			return r
		}
	}
	return nil
}

// restore builds a definition on record, and returns it in use.
func (l *Live) restore(ctx context.Context, id, name string) (*revision, error) {
	body, err := l.definitions.Definition(ctx, name)
	switch {
	case errors.Is(err, a2a.ErrNotFound):
		return nil, interrupted(id, errors.New("its definition is not on record any more"))
	case err != nil:
		return nil, fmt.Errorf("read definition %s: %w", name, err)
	case config.Revision(body) != name:
		return nil, agent.Errorf(agent.CodeDataLoss, agent.ReasonDataLoss, "the definition of %q on record is damaged", id)
	}
	served := l.current.Load()
	def, err := served.def.Restore(body)
	if err != nil {
		return nil, interrupted(id, err)
	}
	r, err := l.newRevision(plan{def: def, known: map[string]string{id: name}})
	if err != nil {
		l.log.Warn("definition on record cannot be built", zap.String("agent", id), zap.String("revision", name), zap.Error(err))
		return nil, interrupted(id, errors.New("its definition on record cannot be built any more"))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.uses, r.retired = 1, l.current.Load() != served
	l.others = append(l.others, r)
	return r, nil
}

// interrupted ends a run that cannot go on.
func interrupted(id string, why error) error {
	return agent.Errorf(agent.CodeInternal, agent.ReasonInterrupted,
		"the run cannot go on with %q as it began: %v", id, why).Because(why)
}

// release ends a use.
func (l *Live) release(r *revision) {
	l.mu.Lock()
	r.uses--
	idle := l.sweep()
	l.mu.Unlock()
	l.closeAll(idle)
}

// sweep takes out what no run uses and none will, and of what may be used again
// what was not used for longest. The caller holds mu, and closes them after.
func (l *Live) sweep() []*revision {
	spare := -maxRestored
	for _, r := range l.others {
		if r.uses == 0 && !r.retired {
			spare++
		}
	}
	var idle []*revision
	for before := -1; len(idle) > before; { // those that went may have been the last use of others
		before = len(idle)
		l.others = slices.DeleteFunc(l.others, func(r *revision) bool {
			again := !r.retired && spare <= 0
			if r.uses > 0 || again {
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

func (l *Live) closeAll(idle []*revision) {
	for _, r := range idle {
		if err := r.close(); err != nil {
			l.log.Warn("agents that nobody uses any more did not close", zap.Error(err))
		}
	}
}
