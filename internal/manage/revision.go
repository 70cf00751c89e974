package manage

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/build"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/upstream"
)

// revisions builds revisions, and holds them while they are used.
type revisions struct {
	egress  *egress.Dialer  // makes the connections whose address the file names
	guarded *egress.Dialer  // makes all other connections
	guard   *egress.Guard   // of guarded, with the addresses that the file allows
	calls   *upstream.Guard // so that a reload does not reset circuit breakers

	definitions store.Definitions
	boards      board.Store // nil if teams have no boards
	log         *zap.Logger

	restoring chan struct{}         // semaphore of size 1: one definition is restored at a time
	served    atomic.Pointer[state] // stored while holding Registry.changing and mu

	mu     sync.Mutex
	others []*revision // not served, but used by runs or kept for reuse; most recently used last; guarded by mu
}

func newRevisions(c Config) (*revisions, error) {
	out, err := egress.New(egress.Config{})
	if err != nil {
		return nil, err
	}
	guard, err := egress.NewGuard()
	if err != nil {
		return nil, err
	}
	guarded, err := egress.New(egress.Config{Allow: guard.Allow})
	if err != nil {
		return nil, err
	}
	return &revisions{
		egress: out, guarded: guarded, guard: guard, calls: upstream.New(upstream.Config{Log: c.Log}),
		definitions: c.Definitions, boards: c.Boards, log: c.Log, restoring: make(chan struct{}, 1),
	}, nil
}

// guardOf returns the guard of connections whose addresses the file does not name.
func guardOf(def *config.Config) (*egress.Guard, error) {
	g, err := egress.NewGuard(def.EgressAllow()...)
	if err != nil {
		return nil, fmt.Errorf("server.egress.allow: %w", err)
	}
	return g, nil
}

// revision is a configuration with the agents built from it: the configuration file, one addition
// to it, or the stored definition of a run.
type revision struct {
	def      *config.Config
	registry *manager.Manager // its agents, and agents of other revisions that they work with
	agents   *build.Agents
	pinned   map[string]*pinned   // its own agents, by id
	from     map[string]*revision // revisions whose agents it uses, by name of the addition; "" is the file

	uses    int  // runs that use it, and revisions that use its agents; guarded by revisions.mu
	retired bool // no new run may use it; guarded by revisions.mu
}

// pinned is what a run stores about the definition of its agent.
type pinned struct {
	pins *teamv1.Pins // shared, read only
	kept atomic.Int64 // time the definition was last stored, in Unix nanoseconds; 0 means never
}

// revision returns the revision of the definition of an agent, or "".
func (p *pinned) revision(id string) string {
	if p == nil {
		return ""
	}
	return p.pins.GetRevisions()[id]
}

// plan describes what a revision is built from.
type plan struct {
	def *config.Config
	// ids are the agents to build; nil means all that are used.
	ids map[string]bool
	// have holds, by id of an agent that they work with, the other revision that the agent belongs
	// to. from holds the same revisions by name of the addition.
	have map[string]*revision
	from map[string]*revision
	// known overrides revisions, by id. A restored definition keeps the revision it was stored
	// under, even if this version of the program would encode its content differently.
	known map[string]string
}

// newRevision builds the agents of a plan.
func (rs *revisions) newRevision(p plan) (*revision, error) {
	if p.ids == nil {
		p.ids = p.def.Used
	}
	r := &revision{def: p.def, registry: manager.New(manager.Config{Log: rs.log}), pinned: map[string]*pinned{}, from: p.from}
	if err := rs.fill(r, p); err != nil {
		r.registry.Close()
		return nil, err
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, from := range p.from {
		from.uses++
	}
	return r, nil
}

func (rs *revisions) fill(r *revision, p plan) error {
	c := build.Config{Definition: p.def, IDs: p.ids, Registry: r.registry, Egress: rs.egress, Guarded: rs.guarded, Upstreams: rs.calls, Current: func() *config.Config { return rs.served.Load().def }, Boards: rs.boards, Log: rs.log}
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

// pin determines the pins of each agent and returns the revisions by id.
func (r *revision) pin(p plan) (map[string]string, error) {
	names, parts := map[string]string{}, map[string]config.Definition{}
	for id, other := range p.have {
		names[id] = other.pinned[id].revision(id)
	}
	for id := range p.ids {
		d, err := r.def.Definition(id)
		if err != nil {
			return nil, err
		}
		names[id], parts[id] = cmp.Or(p.known[id], d.Revision), d
	}
	for id, d := range parts {
		pins := &teamv1.Pins{Revisions: map[string]string{}, Accounts: d.Accounts}
		for _, part := range d.IDs {
			pins.Revisions[part] = names[part]
		}
		r.pinned[id] = &pinned{pins: pins}
	}
	return names, nil
}

// is reports whether the agent has the named revision here.
func (r *revision) is(id, name string) bool {
	p := r.pinned[id]
	return p != nil && p.pins.GetRevisions()[id] == name
}

// close closes the agents and their connections. They must not be in use.
func (r *revision) close() error {
	r.registry.Close()
	return errors.Join(r.agents.Close())
}
