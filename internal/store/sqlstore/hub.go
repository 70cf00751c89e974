package sqlstore

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/agent"
)

// hub wakes the readers of roots in this process. It is safe for concurrent use.
type hub struct {
	mu       sync.Mutex
	watchers map[string]*watched // by root; guarded by mu
	all      store.Bell          // rung for each change, with its audience
}

// watched is a root or topic that has readers.
type watched struct {
	wakes map[chan struct{}]struct{}
	// ended is the journal of the run if it has ended in this process while it was read. From it, readers get what
	// this process has just recorded without reading the database. Otherwise ended is nil.
	ended *journal
}

// Watch returns a channel that receives when a root may have new events. The id of a child stands
// for its root. The root may be created later; its creation sends nothing.
func (s *Store) Watch(id string) (wake <-chan struct{}, stop func()) {
	root, _ := agent.SplitTask(id)
	return s.hub.watch(root)
}

// watch returns a channel that receives when a root or topic changes. stop must be called.
func (h *hub) watch(root string) (wake <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers == nil {
		h.watchers = map[string]*watched{}
	}
	w := h.watchers[root]
	if w == nil {
		w = &watched{wakes: map[chan struct{}]struct{}{}}
		h.watchers[root] = w
	}
	w.wakes[c] = struct{}{}
	return c, func() {
		if j := h.leave(root, c); j != nil {
			j.dropRing()
		}
	}
}

// leave removes a reader. If it was the last one, leave returns the journal that was kept for them.
func (h *hub) leave(root string, c chan struct{}) *journal {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.watchers[root]
	if w == nil {
		return nil
	}
	delete(w.wakes, c)
	if len(w.wakes) > 0 {
		return nil
	}
	delete(h.watchers, root)
	return w.ended
}

// keep stores the journal of an ended run for the readers of its root. It returns false if the root has no readers.
func (h *hub) keep(j *journal) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.watchers[j.root]
	if w != nil {
		w.ended = j
	}
	return w != nil
}

// ended returns the journal that keep has kept for the readers of a root, or nil.
func (h *hub) ended(root string) *journal {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.watchers[root]; w != nil {
		return w.ended
	}
	return nil
}

// poke wakes the readers of a root.
func (h *hub) poke(root string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.watchers[root]; w != nil {
		for c := range w.wakes {
			store.Poke(c)
		}
	}
}

// roots returns the watched roots and topics.
func (h *hub) roots() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]string, 0, len(h.watchers))
	for root := range h.watchers {
		list = append(list, root)
	}
	return list
}

// changed wakes the readers of a root or topic in this process, and the watchers of the
// owners that its change may concern.
func (s *Store) changed(root, audience string) {
	s.hub.all.Ring(audience)
	s.hub.poke(root)
}

// announce is like changed, but also notifies all other replicas.
func (s *Store) announce(root, audience string) {
	s.changed(root, audience)
	s.db.tell(root, audience)
}

// heard wakes the readers and watchers that a change by another replica concerns.
func (s *Store) heard(h hint) {
	s.hub.all.RingIf(h.concerns)
	roots := h.roots
	if roots == nil {
		roots = s.concerned()
	}
	for _, root := range roots {
		s.arrived(root)
	}
}

// arrived wakes the readers and the driver of a root.
func (s *Store) arrived(root string) {
	s.deliver(root)
	s.hub.poke(root)
}

// deliver wakes the driver of a root, because its inbox may hold an input.
func (s *Store) deliver(root string) {
	s.mu.Lock()
	j := s.journals[root]
	if s.arrivals != nil {
		s.arrivals[root] = true
	}
	s.mu.Unlock()
	if j != nil {
		j.arrived()
		store.Poke(j.wake)
	}
}

// concerned returns the roots that this process reads or drives.
func (s *Store) concerned() []string {
	roots := s.hub.roots()
	s.mu.Lock()
	defer s.mu.Unlock()
	for root := range s.journals {
		roots = append(roots, root)
	}
	return roots
}

// poll looks for changes every pollEvery until ctx ends, in case notifications were lost.
func (s *Store) poll(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	seen := map[string]mark{}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if now, err := s.look(ctx, seen); err == nil { // after a failure, the next tick tries again
			seen = now
		}
	}
}

// look wakes the readers of roots that have changed since the last call, and returns
// the state that it saw.
func (s *Store) look(ctx context.Context, seen map[string]mark) (map[string]mark, error) {
	now, err := s.marks(ctx, s.concerned())
	if err != nil {
		return nil, err
	}
	for root, m := range now {
		if j := s.journal(root); j != nil && j.epoch < m.epoch {
			j.lose()
		}
		if was, known := seen[root]; !known || was != m {
			s.hub.all.Ring(m.owner)
			s.arrived(root)
		}
	}
	return now, nil
}

// mark is a part of a run's row that changes with each new event, input or claim.
type mark struct {
	owner              string // never changes
	seq, inputs, epoch int64
}

// pollFor is the timeout of one look.
const pollFor = 5 * time.Second

// marks returns the marks of roots, without unknown ones.
func (s *Store) marks(ctx context.Context, roots []string) (map[string]mark, error) {
	marks := map[string]mark{}
	if len(roots) == 0 {
		return marks, nil
	}
	ctx, cancel := context.WithTimeout(ctx, pollFor)
	defer cancel()
	err := each(ctx, s.db.reader(), func() { clear(marks) }, func(r *sql.Rows) error {
		var root string
		var m mark
		if err := r.Scan(&root, &m.owner, &m.seq, &m.inputs, &m.epoch); err != nil {
			return err
		}
		marks[root] = m
		return nil
	}, `SELECT id, owner, seq, inputs, epoch FROM run WHERE id = ANY($1)`, roots)
	return marks, err
}
