package manage

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/build"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/references"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
)

// of returns the revision that serves an agent, or the revision of the file, whose registry reports
// an unknown agent.
func (s *state) of(id string) *revision {
	if r := s.by[id]; r != nil {
		return r
	}
	return s.base
}

// pinned returns the pins of an agent, or nil if it is not served.
func (s *state) pinned(id string) *pinned { return s.of(id).pinned[id] }

// revisions returns all revisions; those that use agents of the file come before it.
func (s *state) revisions() []*revision {
	if s.base == nil {
		return nil
	}
	return append(slices.Collect(maps.Values(s.additions)), s.base)
}

// build builds a state, except for what the one that is served has built already.
func (rs *revisions) build(next *state, base *revision) (*assembly, error) {
	guard, err := guardOf(next.file)
	if err != nil {
		return nil, err
	}
	a := &assembly{rs: rs, guard: guard, before: rs.served.Load(), defs: next.definitions(), state: next}
	next.def, next.additions, next.by = next.file.Beside(a.defs), map[string]*revision{}, map[string]*revision{}
	if base != nil {
		a.base, a.built = base, []*revision{base}
	}
	return a, a.all()
}

// assembly builds a state. It must be served or discarded before another one is built.
type assembly struct {
	rs     *revisions
	guard  *egress.Guard
	before *state
	defs   map[string]*config.Config
	*state
	built []*revision // new revisions in the order they were built
}

func (a *assembly) all() error {
	switch {
	case a.base != nil: // an earlier attempt has built it
	case a.before.base != nil && a.before.file == a.file:
		a.base = a.before.base
	default:
		if err := a.add("", plan{def: a.file}); err != nil {
			return err
		}
	}
	a.own(a.base)
	for _, name := range slices.Sorted(maps.Keys(a.defs)) {
		var not *NotBuilt
		switch err := a.reuse(name); {
		case errors.As(err, &not): // names the addition that failed
			return err
		case err != nil:
			return &NotBuilt{Addition: name, Agents: faulty(err), Err: err}
		}
	}
	return nil
}

// faulty returns the agents that caused an error, with the reasons.
func faulty(err error) map[string]string {
	agents := map[string]string{}
	var faults build.ToolFaults
	errors.As(err, &faults)
	for _, f := range faults {
		for _, id := range f.IDs {
			agents[id] = strings.TrimPrefix(agents[id]+"; "+f.Why, "; ")
		}
	}
	return agents
}

// own makes a revision serve those of its agents that no other revision serves.
func (a *assembly) own(r *revision) {
	for id := range r.pinned {
		if a.by[id] == nil {
			a.by[id] = r
		}
	}
}

// reuse adds the revision of an addition, the one that is served if it is unchanged, after those of the additions whose agents it uses.
func (a *assembly) reuse(name string) error {
	if a.additions[name] != nil {
		return nil
	}
	p, err := a.plan(name)
	if err != nil {
		return err
	}
	if old := a.before.additions[name]; old != nil && old.def == p.def && maps.Equal(old.from, p.from) {
		a.additions[name] = old
		a.own(old)
		return nil
	}
	return a.add(name, p)
}

// plan determines which agents an addition builds and which it uses from other revisions.
func (a *assembly) plan(name string) (plan, error) {
	p := plan{def: a.defs[name], ids: map[string]bool{}, have: map[string]*revision{}, from: map[string]*revision{"": a.base}}
	for _, id := range references.Reach(p.def.Server, p.def.Added(name)...) {
		switch with := p.def.Addition(id); {
		case with == name:
			p.ids[id] = true
		case with == "" && a.base.pinned[id] != nil:
			p.have[id] = a.base
		case with == "":
			p.ids[id] = true // the file defines it but does not serve it
		case a.defs[with] == nil:
			return plan{}, fmt.Errorf("%q needs %q, which is not served", name, with)
		default:
			if err := a.reuse(with); err != nil {
				return plan{}, &NotBuilt{Addition: with, Err: err}
			}
			p.have[id], p.from[with] = a.additions[with], a.additions[with]
		}
	}
	return p, nil
}

// add builds a revision and adds it to the set.
func (a *assembly) add(name string, p plan) error {
	r, err := a.rs.newRevision(p)
	if err != nil {
		return err
	}
	a.built = append(a.built, r)
	if name == "" {
		a.base = r
		return nil
	}
	a.additions[name] = r
	a.own(r)
	return nil
}

// serve serves the state that was built.
func (a *assembly) serve() {
	rs := a.rs
	rs.mu.Lock()
	kept := map[*revision]bool{}
	for _, r := range a.revisions() {
		kept[r] = true
	}
	for _, r := range rs.served.Load().revisions() {
		if !kept[r] {
			rs.others = append(rs.others, r)
		}
	}
	for _, r := range rs.others {
		r.retired = true // restored revisions too: they use the addresses and keys of the previous file
	}
	rs.served.Store(a.state)
	rs.guard.Replace(a.guard)
	idle := rs.sweep()
	rs.mu.Unlock()
	rs.closeAll(idle)
}

// release returns the revision of the file if it was built, so that discard leaves it.
func (a *assembly) release() (base *revision) {
	a.built = slices.DeleteFunc(a.built, func(r *revision) bool {
		if r == a.base {
			base = r
		}
		return r == a.base
	})
	return base
}

// discard closes what was built.
func (a *assembly) discard() {
	rs := a.rs
	rs.mu.Lock()
	for _, r := range a.built {
		r.retired = true
	}
	rs.others = append(rs.others, a.built...)
	idle := rs.sweep()
	rs.mu.Unlock()
	rs.closeAll(idle)
}

// buildUnserved builds agents without serving them, to check that they can be reached. They must not work with other agents.
// The caller must call done.
func (rs *revisions) buildUnserved(def *config.Config, ids []string) (agents map[string]agent.Agent, done func(), err error) {
	reg := manager.New(manager.Config{Log: rs.log})
	c := build.Config{Definition: def, IDs: map[string]bool{}, Registry: reg, Egress: rs.egress, Guarded: rs.guarded, Log: rs.log}
	for _, id := range ids {
		c.IDs[id] = true
	}
	built, err := build.Register(c)
	if err != nil {
		reg.Close()
		return nil, nil, err
	}
	agents = map[string]agent.Agent{}
	for _, id := range ids {
		if agents[id], err = reg.Get(id); err != nil {
			break
		}
	}
	done = func() {
		reg.Close()
		if err := built.Close(); err != nil {
			rs.log.Warn("closing agents that are not served", zap.Error(err))
		}
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return agents, done, nil
}
