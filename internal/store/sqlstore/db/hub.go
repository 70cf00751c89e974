package db

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"

	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/store"
)

// hub wakes who watches roots and other topics in this process. It is safe for concurrent use.
type hub struct {
	mu       sync.Mutex
	watchers map[string][]chan struct{} // by topic; guarded by mu
	owners   int                        // number of watchers of all that concerns an owner; guarded by mu
	drivers  Drivers                    // set by Listen, before any change of another replica is heard
}

// Drivers are the runs that this process drives.
type Drivers interface {
	// Deliver wakes the driver of a root, because its inbox may hold an input.
	Deliver(root string)
	// Driven returns the roots of all runs that this process drives.
	Driven() []string
}

// forTag is the prefix of topics that are audiences. No root begins with it.
const forTag = "~for/"

// tag returns the topic of an audience. It is short, because owners may be long, and has no comma.
func tag(audience string) string {
	sum := sha256.Sum256([]byte(audience))
	return forTag + hex.EncodeToString(sum[:8])
}

// Watch returns a channel that receives when a topic changes. stop must be called.
func (h *hub) Watch(topic string) (wake <-chan struct{}, stop func()) { return h.watch(0, topic) }

// WatchAll returns a channel that receives when something changes that may concern an owner. stop must be called.
func (h *hub) WatchAll(owner string) (wake <-chan struct{}, stop func()) {
	return h.watch(1, tag(owner), tag(store.OwnersOf(identity.AccountOf(owner))), tag(store.AllOwners))
}

// watch returns a channel that receives when one of some topics changes, for a number of owners.
func (h *hub) watch(owners int, topics ...string) (wake <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers == nil {
		h.watchers = map[string][]chan struct{}{}
	}
	for _, topic := range topics {
		h.watchers[topic] = append(h.watchers[topic], c)
	}
	h.owners += owners
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.owners -= owners
		for _, topic := range topics {
			left := slices.DeleteFunc(h.watchers[topic], func(other chan struct{}) bool { return other == c })
			if h.watchers[topic] = left; len(left) == 0 {
				delete(h.watchers, topic)
			}
		}
	}
}

// Watched reports whether a topic has watchers.
func (h *hub) Watched(topic string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watchers[topic]) > 0
}

// Ring wakes the watchers of topics in this process, and of the owners that their change may concern.
func (h *hub) Ring(audience string, topics ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owners > 0 {
		h.poke(tag(audience))
	}
	for _, topic := range topics {
		h.poke(topic)
	}
}

// poke wakes the watchers of a topic. The caller must hold mu.
func (h *hub) poke(topic string) {
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

// Arrived wakes the readers and the drivers of topics that another replica has changed.
func (h *hub) Arrived(topics ...string) {
	for _, topic := range topics {
		h.drivers.Deliver(topic)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, topic := range topics {
		h.poke(topic)
	}
}

// Announce wakes the watchers of a root or topic in all replicas, and those of the owners that its change may concern.
func (d *DB) Announce(topic, audience string) {
	d.Ring(audience, topic)
	d.Tell(topic, audience)
}
