package serve

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/build"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/manage"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
)

// servedSet is everything that is served at one time: the configuration file and its additions.
// Each is a revision of its own, so that a change rebuilds only what it affects. A servedSet is
// immutable.
type servedSet struct {
	def       *config.Config // the file and all additions combined
	file      *revision
	additions map[string]*revision // by name
	by        map[string]*revision // the revision that serves an agent or team, by id
}

// of returns the revision that serves an agent, or the revision of the file, whose registry reports
// an unknown agent.
func (s *servedSet) of(id string) *revision {
	if r := s.by[id]; r != nil {
		return r
	}
	return s.file
}

// pinned returns the pins of an agent, or nil if it is not served.
func (s *servedSet) pinned(id string) *pinned { return s.of(id).pinned[id] }

// revisions returns all revisions; those that use agents of the file come before it.
func (s *servedSet) revisions() []*revision {
	if s == nil {
		return nil
	}
	return append(slices.Collect(maps.Values(s.additions)), s.file)
}

// Prepare implements manage.Live. Unchanged revisions are not built again.
func (l *Live) Prepare(file *config.Config, additions map[string]*config.Config) (manage.Prepared, error) {
	guard, err := guardOf(file)
	if err != nil {
		return nil, err
	}
	a := &assembly{live: l, guard: guard, before: l.current.Load(), defs: additions, servedSet: &servedSet{
		def: file.Beside(additions), additions: map[string]*revision{}, by: map[string]*revision{},
	}}
	if err := a.all(file); err != nil {
		a.Discard()
		return nil, err
	}
	return a, nil
}

// assembly builds the next servedSet.
type assembly struct {
	live   *Live
	guard  *egress.Guard
	before *servedSet // nil before anything was served
	defs   map[string]*config.Config
	*servedSet
	built []*revision // new revisions in the order they were built
}

func (a *assembly) all(file *config.Config) error {
	if a.before != nil && a.before.file.def == file {
		a.file = a.before.file
	} else if err := a.add("", plan{def: file}); err != nil {
		return err
	}
	a.own(a.file)
	for _, name := range slices.Sorted(maps.Keys(a.defs)) {
		var not *manage.NotBuilt
		switch err := a.addition(name); {
		case errors.As(err, &not): // names the addition that failed
			return err
		case err != nil:
			return &manage.NotBuilt{Addition: name, Agents: faulty(err), Err: err}
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

// addition adds the revision of an addition, after those of the additions whose agents it uses.
func (a *assembly) addition(name string) error {
	if a.additions[name] != nil {
		return nil
	}
	p, err := a.plan(name)
	if err != nil {
		return err
	}
	if a.before != nil {
		if old := a.before.additions[name]; old != nil && old.def == p.def && maps.Equal(old.from, p.from) {
			a.additions[name] = old
			a.own(old)
			return nil
		}
	}
	return a.add(name, p)
}

// plan determines which agents an addition builds and which it uses from other revisions.
func (a *assembly) plan(name string) (plan, error) {
	p := plan{def: a.defs[name], ids: map[string]bool{}, have: map[string]*revision{}, from: map[string]*revision{"": a.file}}
	for _, id := range p.def.Reach(p.def.Added(name)...) {
		switch with := p.def.Addition(id); {
		case with == name:
			p.ids[id] = true
		case with == "" && a.file.pinned[id] != nil:
			p.have[id] = a.file
		case with == "":
			p.ids[id] = true // the file defines it but does not serve it
		case a.defs[with] == nil:
			return plan{}, fmt.Errorf("%q needs %q, which is not served", name, with)
		default:
			if err := a.addition(with); err != nil {
				return plan{}, &manage.NotBuilt{Addition: with, Err: err}
			}
			p.have[id], p.from[with] = a.additions[with], a.additions[with]
		}
	}
	return p, nil
}

// add builds a revision and adds it to the set.
func (a *assembly) add(name string, p plan) error {
	r, err := a.live.newRevision(p)
	if err != nil {
		return err
	}
	a.built = append(a.built, r)
	if name == "" {
		a.file = r
		return nil
	}
	a.additions[name] = r
	a.own(r)
	return nil
}

// Serve implements manage.Prepared.
func (a *assembly) Serve() {
	l := a.live
	l.mu.Lock()
	kept := map[*revision]bool{}
	for _, r := range a.revisions() {
		kept[r] = true
	}
	for _, r := range l.current.Load().revisions() {
		if !kept[r] {
			l.others = append(l.others, r)
		}
	}
	for _, r := range l.others {
		r.retired = true // restored revisions too: they use the addresses and keys of the previous file
	}
	l.current.Store(a.servedSet)
	l.guard.Replace(a.guard)
	idle := l.sweep()
	l.mu.Unlock()
	l.closeAll(idle)
}

// Discard implements manage.Prepared.
func (a *assembly) Discard() {
	l := a.live
	l.mu.Lock()
	for _, r := range a.built {
		r.retired = true
	}
	l.others = append(l.others, a.built...)
	idle := l.sweep()
	l.mu.Unlock()
	l.closeAll(idle)
}

// BuildUnserved implements manage.Live.
func (l *Live) BuildUnserved(def *config.Config, ids []string) (map[string]agent.Agent, func(), error) {
	m := manager.New(manager.Config{Log: l.log})
	c := build.Config{Definition: def, IDs: map[string]bool{}, Registry: m, Egress: l.egress, Guarded: l.guarded, Log: l.log}
	for _, id := range ids {
		c.IDs[id] = true
	}
	built, err := build.Register(c)
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	agents := map[string]agent.Agent{}
	for _, id := range ids {
		if agents[id], err = m.Get(id); err != nil {
			break
		}
	}
	done := func() {
		m.Close()
		if err := built.Close(); err != nil {
			l.log.Warn("closing agents that are not served", zap.Error(err))
		}
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return agents, done, nil
}
