package db

import (
	"slices"
	"sync"

	"github.com/agentteams/team-server/internal/store"
)

// hub wakes the readers of roots and topics in this process. It is safe for concurrent use.
type hub struct {
	mu       sync.Mutex
	watchers map[string][]chan struct{} // by root or topic; guarded by mu
	all      store.Bell                 // rung for each change, with its audience
	drivers  Drivers                    // set by Listen, before any change of another replica is heard
}

// Drivers are the runs that this process drives.
type Drivers interface {
	// Deliver wakes the driver of a root, because its inbox may hold an input.
	Deliver(root string)
	// Driven returns the roots of all runs that this process drives.
	Driven() []string
}

// Watch returns a channel that receives when a root or topic changes. stop must be called.
func (h *hub) Watch(topic string) (wake <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers == nil {
		h.watchers = map[string][]chan struct{}{}
	}
	h.watchers[topic] = append(h.watchers[topic], c)
	return c, func() { h.leave(topic, c) }
}

// leave removes a watcher.
func (h *hub) leave(topic string, c chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(h.watchers[topic], func(other chan struct{}) bool { return other == c })
	if h.watchers[topic] = left; len(left) == 0 {
		delete(h.watchers, topic)
	}
}

// WatchAll returns a channel that receives when something changes that may concern an owner. stop must be called.
func (h *hub) WatchAll(owner string) (wake <-chan struct{}, stop func()) { return h.all.Watch(owner) }

// Watched reports whether a root or topic has watchers.
func (h *hub) Watched(topic string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watchers[topic]) > 0
}

// Ring wakes the watchers of the owners that a change may concern.
func (h *hub) Ring(audience string) { h.all.Ring(audience) }

// poke wakes the watchers of a root or topic.
func (h *hub) poke(topic string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.watchers[topic] {
		store.Poke(c)
	}
}

// Concerned returns what this process watches or drives.
func (h *hub) Concerned() []string {
	list := h.drivers.Driven()
	h.mu.Lock()
	defer h.mu.Unlock()
	for topic := range h.watchers {
		list = append(list, topic)
	}
	return list
}

// Arrived wakes the readers and the driver of a root that another replica has changed.
func (h *hub) Arrived(root string) {
	h.drivers.Deliver(root)
	h.poke(root)
}

// heard wakes whom a change by another replica concerns.
func (h *hub) heard(of hint) {
	h.all.RingIf(of.concerns)
	roots := of.roots
	if roots == nil {
		roots = h.Concerned()
	}
	for _, root := range roots {
		h.Arrived(root)
	}
}

// Announce wakes the watchers of a root or topic in all replicas, and those of the owners that its change may concern.
func (d *DB) Announce(topic, audience string) {
	d.Ring(audience)
	d.poke(topic)
	d.Tell(topic, audience)
}
