package app

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/build"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/manage"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
)

// scene is all that is served at one time: the file and its additions, each a
// revision of its own, so that a change builds what it concerns alone. It does not
// change.
type scene struct {
	def       *config.Config // of all together
	file      *revision
	additions map[string]*revision // by name
	by        map[string]*revision // who has an agent or team, by its id
}

// of is who has an agent, or says that it is not there.
func (s *scene) of(id string) *revision {
	if r := s.by[id]; r != nil {
		return r
	}
	return s.file
}

// pinned is what a run of an agent is tied to; nil where there is no such agent.
func (s *scene) pinned(id string) *pinned { return s.of(id).pinned[id] }

// revisions are all, those first that have agents from others.
func (s *scene) revisions() []*revision {
	if s == nil {
		return nil
	}
	return append(slices.Collect(maps.Values(s.additions)), s.file)
}

// Prepare implements manage.Live. What is as it was is not built again.
func (l *Live) Prepare(file *config.Config, additions map[string]*config.Config) (manage.Prepared, error) {
	a := &assembly{live: l, before: l.current.Load(), defs: additions, scene: &scene{
		def: file.Beside(additions), additions: map[string]*revision{}, by: map[string]*revision{},
	}}
	if err := a.all(file); err != nil {
		a.Discard()
		return nil, err
	}
	return a, nil
}

// assembly puts together what is served next.
type assembly struct {
	live   *Live
	before *scene // nil: nothing was served yet
	defs   map[string]*config.Config
	*scene
	built []*revision // those that are new, in their order
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
		case errors.As(err, &not): // it, or one that it works with
			return err
		case err != nil:
			return &manage.NotBuilt{Addition: name, Agents: faulty(err), Err: err}
		}
	}
	return nil
}

// faulty are the agents that are known to be to blame, and for what.
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

// own has a revision serve its agents that nobody else serves.
func (a *assembly) own(r *revision) {
	for id := range r.pinned {
		if a.by[id] == nil {
			a.by[id] = r
		}
	}
}

// addition puts an addition in place, behind those that it has agents from.
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

// plan finds out what an addition builds, and what it has from others.
func (a *assembly) plan(name string) (plan, error) {
	p := plan{def: a.defs[name], ids: map[string]bool{}, have: map[string]*revision{}, from: map[string]*revision{"": a.file}}
	for _, id := range p.def.Reach(p.def.Added(name)...) {
		switch with := p.def.Addition(id); {
		case with == name:
			p.ids[id] = true
		case with == "" && a.file.pinned[id] != nil:
			p.have[id] = a.file
		case with == "":
			p.ids[id] = true // it is in the file, and nobody there works with it
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

// add builds a revision.
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
		r.retired = true // restored ones too: they have the connections of what was served before
	}
	l.current.Store(a.scene)
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

// Alone implements manage.Live.
func (l *Live) Alone(def *config.Config, ids []string) (map[string]agent.Agent, func(), error) {
	m := manager.New(manager.Config{Log: l.log})
	c := build.Config{Definition: def, IDs: map[string]bool{}, Registry: m, Egress: l.egress, Log: l.log}
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
