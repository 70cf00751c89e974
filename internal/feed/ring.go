package feed

import (
	"sort"

	"google.golang.org/protobuf/proto"
)

// Limits of what a feed keeps for its readers.
const (
	ringEntries = 1024
	ringBytes   = 1 << 20  // of one feed
	ringsBytes  = 64 << 20 // of all feeds of a set together
)

// entry is what readers are told of one event.
type entry struct {
	seq     int64
	updates []Update
	first   Update // instead of them: the task, with the event that shows it, or the message that is no task
	over    bool   // the task has ended
	size    int    // in bytes, about
}

// measure counts an entry's responses three times: as they are, and in two forms.
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

// ring keeps the newest entries, in order.
type ring struct {
	entries []*entry
	size    int
	base    int64 // up to here there is nothing in it
}

// add adds an entry and drops the oldest ones beyond the limits, none newer than
// what was seen. The newest is kept, whatever its size.
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

// after returns the first entry behind a sequence, nil without one.
func (r *ring) after(seq int64) *entry {
	i := sort.Search(len(r.entries), func(i int) bool { return r.entries[i].seq > seq })
	if i == len(r.entries) {
		return nil
	}
	return r.entries[i]
}
