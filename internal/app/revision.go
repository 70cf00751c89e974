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
// loaded, or what a run on record is tied to.
type revision struct {
	def      *config.Config
	registry *manager.Manager
	agents   *build.Agents
	pinned   map[string]*pinned // by id

	uses    int  // runs that are driven by it; guarded by Live.mu
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

// newRevision builds the agents of a definition. known are revisions by id that
// it has by its origin, and not by its content as this program sees it.
func (l *Live) newRevision(def *config.Config, known map[string]string) (*revision, error) {
	r := &revision{def: def, registry: manager.New(manager.Config{Log: l.log}), pinned: map[string]*pinned{}}
	names, err := r.pin(known)
	if err == nil {
		r.agents, err = build.Register(build.Config{
			Definition: def, Revisions: names, Registry: r.registry, Egress: l.egress, Upstreams: l.calls, Current: l.served, Log: l.log,
		})
	}
	if err != nil {
		r.registry.Close()
		return nil, err
	}
	return r, nil
}

// pin finds out what runs of each agent are tied to, and returns the names of
// the definitions by id.
func (r *revision) pin(known map[string]string) (map[string]string, error) {
	names, parts := map[string]string{}, map[string][]string{}
	for id := range r.def.Used {
		d, err := r.def.Definition(id)
		if err != nil {
			return nil, err
		}
		names[id], parts[id] = cmp.Or(known[id], d.Revision), d.IDs
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
