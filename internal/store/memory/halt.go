package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/halt"
	"github.com/agentteams/team-server/internal/store"
)

// haltLag is how long a run waits that was paused before the last change of the halts was seen.
const haltLag = 50 * time.Millisecond

// halts are the halts of a Store. The zero value has none. No other lock may be acquired while mu is
// held.
type halts struct {
	mu       sync.Mutex
	version  int64                       // guarded by mu
	list     []*teamv1.Halt              // by version; guarded by mu
	tasks    map[int64]map[string]string // owners of what each halt has stopped, by its version and the id; guarded by mu
	watchers map[chan struct{}]struct{}  // guarded by mu
}

// Halts implements halt.Store.
func (s *Store) Halts(context.Context) (halt.Snapshot, error) {
	h := &s.halts
	h.mu.Lock()
	defer h.mu.Unlock()
	snap := halt.Snapshot{Version: h.version}
	for _, one := range h.list {
		snap.Halts = append(snap.Halts, proto.CloneOf(one))
	}
	return snap, nil
}

// HaltVersion implements halt.Store.
func (s *Store) HaltVersion(context.Context) (int64, error) {
	s.halts.mu.Lock()
	defer s.halts.mu.Unlock()
	return s.halts.version, nil
}

// Halt implements halt.Store.
func (s *Store) Halt(ctx context.Context, by *teamv1.Halt, may halt.May) error {
	h := &s.halts
	h.mu.Lock()
	if err := may.Allow(h.find(by.GetKind(), halt.KeyOf(by))); err != nil {
		h.mu.Unlock()
		return err
	}
	h.remove(by.GetKind(), halt.KeyOf(by))
	h.version++
	by.Version = h.version
	h.list = append(h.list, proto.CloneOf(by))
	if h.tasks == nil {
		h.tasks = map[int64]map[string]string{}
	}
	h.tasks[by.GetVersion()] = map[string]string{}
	h.mu.Unlock()
	s.wakeHalted() // they may wait for the halt that is replaced
	if err := s.ReachRuns(ctx, by); err != nil {
		return err
	}
	h.wake()
	return s.audited(ctx)
}

// find returns a copy of a halt, nil if it is not in force. The caller holds mu.
func (h *halts) find(kind teamv1.HaltKind, key string) *teamv1.Halt {
	for _, one := range h.list {
		if one.GetKind() == kind && halt.KeyOf(one) == key {
			return proto.CloneOf(one)
		}
	}
	return nil
}

// remove removes the halt with a kind and a key and returns it. It returns nil if no such halt is in
// force. The caller holds mu.
func (h *halts) remove(kind teamv1.HaltKind, key string) *teamv1.Halt {
	i := slices.IndexFunc(h.list, func(by *teamv1.Halt) bool { return by.GetKind() == kind && halt.KeyOf(by) == key })
	if i < 0 {
		return nil
	}
	by := h.list[i]
	h.list = slices.Delete(h.list, i, i+1)
	delete(h.tasks, by.GetVersion())
	return by
}

// wake wakes all watchers.
func (h *halts) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watchers {
		store.Poke(w)
	}
}

// ReachRuns implements halt.Store.
func (s *Store) ReachRuns(_ context.Context, by *teamv1.Halt) error {
	for _, r := range s.allRuns() {
		if covers(by, r) && s.reach(by, r) {
			s.halts.note(by.GetVersion(), halt.Task{Owner: r.owner, ID: r.root})
		}
	}
	return nil
}

// covers reports whether a halt covers a run as a whole.
func covers(by *teamv1.Halt, r *run) bool {
	switch by.GetKind() {
	case teamv1.HaltKind_HALT_KIND_SERVER:
		return true
	case teamv1.HaltKind_HALT_KIND_ACCOUNT:
		return strings.HasPrefix(r.owner, by.GetName()+"/")
	case teamv1.HaltKind_HALT_KIND_OWNER:
		return r.owner == by.GetName()
	case teamv1.HaltKind_HALT_KIND_TEAM, teamv1.HaltKind_HALT_KIND_AGENT:
		return r.agent == by.GetName() && r.maker == by.GetAccount()
	default:
		return false
	}
}

// reach makes a covered run due at once if the halt cancels runs and no process has claimed the run. It
// reports whether the halt stops the run.
func (s *Store) reach(by *teamv1.Halt, r *run) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
		return false
	case r.claimed:
		return true
	case by.GetPause():
		return s.due.has(r, s.clock())
	}
	s.due.set(r, s.clock())
	return true
}

// note records that a halt has stopped a task, if it is in force.
func (h *halts) note(version int64, t halt.Task) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if of := h.tasks[version]; of != nil {
		of[t.ID] = t.Owner
	}
}

// allRuns returns the runs that are stored.
func (s *Store) allRuns() []*run {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]*run, 0, len(s.runs))
	for _, r := range s.runs {
		list = append(list, r)
	}
	return list
}

// EndHalt implements halt.Store.
func (s *Store) EndHalt(ctx context.Context, kind teamv1.HaltKind, key string, may halt.May) (*teamv1.Halt, error) {
	h := &s.halts
	h.mu.Lock()
	if err := may.Allow(h.find(kind, key)); err != nil {
		h.mu.Unlock()
		return nil, err
	}
	by := h.remove(kind, key)
	if by != nil {
		h.version++
	}
	h.mu.Unlock()
	if by == nil {
		return nil, nil //nolint:nilnil // EndHalt returns nil if no such halt is in force
	}
	s.wakeHalted()
	h.wake()
	return by, s.audited(ctx)
}

// wakeHalted makes the runs due that wait for the end of a halt.
func (s *Store) wakeHalted() {
	for _, r := range s.allRuns() {
		r.mu.Lock()
		if r.halted && !r.claimed && !r.ended {
			r.halted = false
			s.due.set(r, s.clock())
		}
		r.mu.Unlock()
	}
}

// AcknowledgeHalts implements halt.Store. There is no other replica that could wait for it.
func (s *Store) AcknowledgeHalts(_ context.Context, _ string, _ int64, stopped map[int64][]halt.Task) error {
	for by, tasks := range stopped {
		for _, t := range tasks {
			s.halts.note(by, t)
		}
	}
	s.halts.wake()
	return nil
}

// HaltsBehind implements halt.Store. There is no other replica.
func (s *Store) HaltsBehind(context.Context, int64, string) ([]string, error) { return nil, nil }

// HeldBehind implements halt.Store. There is no other replica.
func (s *Store) HeldBehind(context.Context, int64, string, int) ([]halt.Held, error) { return nil, nil }

// HaltsApplied implements halt.Store. There is no other replica.
func (s *Store) HaltsApplied(context.Context, int64) ([]string, error) { return nil, nil }

// RecordHalted implements halt.Store.
func (s *Store) RecordHalted(ctx context.Context, version int64, tasks []halt.Task) error {
	return s.AcknowledgeHalts(ctx, "", 0, map[int64][]halt.Task{version: tasks})
}

// HaltedTasks implements halt.Store.
func (s *Store) HaltedTasks(_ context.Context, version int64, limit int) (tasks []halt.Task, total int, err error) {
	h := &s.halts
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, owner := range h.tasks[version] {
		tasks = append(tasks, halt.Task{Owner: owner, ID: id})
	}
	slices.SortFunc(tasks, func(a, b halt.Task) int { return cmp.Compare(a.ID, b.ID) })
	return tasks[:min(limit, len(tasks))], len(tasks), nil
}

// WatchHalts implements halt.Store.
func (s *Store) WatchHalts() (wake <-chan struct{}, stop func()) {
	h, w := &s.halts, make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers == nil {
		h.watchers = map[chan struct{}]struct{}{}
	}
	h.watchers[w] = struct{}{}
	return w, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, w)
	}
}

// waitsForHalt returns when a run is due that is parked until a time because a halt has paused it:
// soon, if the halts have changed since the version that its driver has seen.
func (h *halts) waitsForHalt(seen int64, now, until time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.version == seen {
		return until
	}
	return now.Add(haltLag)
}
