package app

import (
	"cmp"
	"errors"
	"sync/atomic"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/build"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/pkg/manager"
)

// revision is a definition and what was built from it: the file as it was
// loaded, an addition to it, or what a run on record is tied to.
type revision struct {
	def      *config.Config
	registry *manager.Manager // its agents, and those of others that they work with
	agents   *build.Agents
	pinned   map[string]*pinned   // its own, by id
	from     map[string]*revision // where it has agents from, by the name of the addition; empty is the file

	uses    int  // runs that are driven by it, and revisions that have agents from it; guarded by Live.mu
	retired bool // no further run is; guarded by Live.mu
}

// pinned is what a run of an agent is tied to.
type pinned struct {
	pins *teamv1.Pins // shared: read only
	kept atomic.Int64 // when it was last put on record, in nanoseconds; 0 is never
}

// revision names the definition of an agent; empty for none.
func (p *pinned) revision(id string) string {
	if p == nil {
		return ""
	}
	return p.pins.GetRevisions()[id]
}

// plan is what a revision is built from.
type plan struct {
	def *config.Config
	// ids are those to build; nil is all that are used.
	ids map[string]bool
	// have are the agents of others that they work with, by id; from are these others.
	have map[string]*revision
	from map[string]*revision
	// known are revisions by id that the definition has by its origin, and not by its
	// content as this program sees it.
	known map[string]string
}

// newRevision builds the agents of a definition.
func (l *Live) newRevision(p plan) (*revision, error) {
	if p.ids == nil {
		p.ids = p.def.Used
	}
	r := &revision{def: p.def, registry: manager.New(manager.Config{Log: l.log}), pinned: map[string]*pinned{}, from: p.from}
	if err := l.fill(r, p); err != nil {
		r.registry.Close()
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, from := range p.from {
		from.uses++
	}
	return r, nil
}

func (l *Live) fill(r *revision, p plan) error {
	c := build.Config{Definition: p.def, IDs: p.ids, Registry: r.registry, Egress: l.egress, Upstreams: l.calls, Current: l.served, Boards: l.boards, Log: l.log}
	for id, other := range p.have {
		a, err := other.registry.Get(id)
		if err == nil {
			err = r.registry.Register(id, a)
		}
		if err != nil {
			return err
		}
	}
	for _, other := range p.from {
		c.From = append(c.From, other.agents)
	}
	var err error
	if c.Revisions, err = r.pin(p); err == nil {
		r.agents, err = build.Register(c)
	}
	return err
}

// pin finds out what runs of each agent are tied to, and returns the names of
// the definitions by id.
func (r *revision) pin(p plan) (map[string]string, error) {
	names, parts := map[string]string{}, map[string][]string{}
	for id, other := range p.have {
		names[id] = other.pinned[id].revision(id)
	}
	for id := range p.ids {
		d, err := r.def.Definition(id)
		if err != nil {
			return nil, err
		}
		names[id], parts[id] = cmp.Or(p.known[id], d.Revision), d.IDs
	}
	for id, ids := range parts {
		pins := &teamv1.Pins{Revisions: map[string]string{}}
		for _, part := range ids {
			pins.Revisions[part] = names[part]
		}
		r.pinned[id] = &pinned{pins: pins}
	}
	return names, nil
}

// is reports whether an agent has a revision here.
func (r *revision) is(id, name string) bool {
	p := r.pinned[id]
	return p != nil && p.pins.GetRevisions()[id] == name
}

// close closes the connections. Nothing may use them any more.
func (r *revision) close() error {
	r.registry.Close()
	return errors.Join(r.agents.Close())
}
