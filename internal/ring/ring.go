// Package ring keeps in memory, of journals, the newest entries, for readers that are about to want them.
package ring

import (
	"sort"
	"sync/atomic"
)

// Limits of rings.
const (
	// maxBytes is the maximum number of bytes of a ring.
	maxBytes = 1 << 20
	// MaxAll is the maximum number of bytes of all rings of a group.
	MaxAll = 64 << 20
)

// Group is what some rings share: each keeps less when there are many. The zero value has no rings. It is safe for
// concurrent use.
type Group struct{ rings, bytes atomic.Int64 }

// Bytes returns the size of all entries.
func (g *Group) Bytes() int64 { return g.bytes.Load() }

// Share returns how many bytes each ring may keep.
func (g *Group) Share() int { return int(min(maxBytes, MaxAll/max(g.rings.Load(), 1))) }

// Entry is an entry of a ring.
type Entry interface {
	// Seq is the sequence number of the entry.
	Seq() int64
	// Bytes is about how much memory it needs.
	Bytes() int
}

// Ring holds the newest entries in order. It is not safe for concurrent use.
type Ring[E Entry] struct {
	// Base is the sequence number up to which there are no entries.
	Base int64

	group   *Group
	most    int // number of entries
	entries []E
	bytes   int
}

// New returns an empty ring of a group, for most entries. Drop must be called.
func New[E Entry](g *Group, most int) Ring[E] {
	g.rings.Add(1)
	return Ring[E]{group: g, most: most}
}

// Add adds an entry and drops the oldest ones beyond the limits, but only those with sequence
// numbers up to seen. It never drops the newest entry, whatever its size:
// all readers of a large entry share it, and would each read and decode their own copy.
func (r *Ring[E]) Add(e E, seen int64) {
	before := r.bytes
	r.entries = append(r.entries, e)
	r.bytes += e.Bytes()
	for limit := r.group.Share(); len(r.entries) > 1 && r.entries[0].Seq() <= seen && (r.bytes > limit || len(r.entries) > r.most); {
		var none E
		r.Base = r.entries[0].Seq()
		r.bytes -= r.entries[0].Bytes()
		r.entries[0] = none
		r.entries = r.entries[1:]
	}
	r.group.bytes.Add(int64(r.bytes - before))
}

// After returns the entries after a sequence number. The result is valid until the next call of Add.
func (r *Ring[E]) After(seq int64) []E {
	return r.entries[sort.Search(len(r.entries), func(i int) bool { return r.entries[i].Seq() > seq }):]
}

// Len returns the number of entries.
func (r *Ring[E]) Len() int { return len(r.entries) }

// Bytes returns the size of the entries.
func (r *Ring[E]) Bytes() int { return r.bytes }

// Drop empties the ring, which must not be used any more, and leaves its group. Further calls do nothing.
func (r *Ring[E]) Drop() {
	if r.group == nil {
		return
	}
	r.group.bytes.Add(-int64(r.bytes))
	r.group.rings.Add(-1)
	*r = Ring[E]{}
}
