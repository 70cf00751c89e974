package feed

import (
	"sort"

	"google.golang.org/protobuf/proto"
)

// Limits of the entries that feeds keep for their readers.
const (
	ringEntries = 1024
	ringBytes   = 1 << 20  // bytes in one feed
	ringsBytes  = 64 << 20 // bytes in all feeds together
)

// entry holds the updates for one event.
type entry struct {
	seq     int64
	updates []Update
	first   Update // instead of updates: the task, at the event that makes it visible, or a direct message
	over    bool   // the task has ended
	size    int    // approximate, in bytes
}

// measure computes the size. It counts each response three times: decoded and in two encoded forms.
func (e *entry) measure() {
	const overhead = 256
	e.size = overhead
	for _, u := range e.updates {
		e.size += 3*proto.Size(u.Response) + overhead
	}
	if e.first.Response != nil {
		e.size += 3 * proto.Size(e.first.Response)
	}
}

// ring holds the newest entries in order.
type ring struct {
	entries []*entry
	size    int
	base    int64 // sequence number up to which there are no entries
}

// add adds an entry and drops the oldest ones beyond the limits, but only those with sequence
// numbers up to seen. It never drops the newest entry, whatever its size.
func (r *ring) add(e *entry, limit int, seen int64) {
	r.entries = append(r.entries, e)
	r.size += e.size
	for len(r.entries) > 1 && r.entries[0].seq <= seen && (r.size > limit || len(r.entries) > ringEntries) {
		old := r.entries[0]
		r.base = old.seq
		r.size -= old.size
		r.entries[0] = nil
		r.entries = r.entries[1:]
	}
}

// after returns the first entry after a sequence number, nil without one.
func (r *ring) after(seq int64) *entry {
	i := sort.Search(len(r.entries), func(i int) bool { return r.entries[i].seq > seq })
	if i == len(r.entries) {
		return nil
	}
	return r.entries[i]
}
