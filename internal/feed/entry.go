package feed

import "google.golang.org/protobuf/proto"

// ringEntries is the maximum number of entries that a feed keeps for its readers.
const ringEntries = 1024

// entry holds the updates for one event.
type entry struct {
	seq     int64
	updates []Update
	first   Update // instead of updates: the task, at the event that makes it visible, or a direct message
	over    bool   // the task has ended
	size    int    // approximate, in bytes
}

// Seq implements ring.Entry.
func (e *entry) Seq() int64 { return e.seq }

// Bytes implements ring.Entry.
func (e *entry) Bytes() int { return e.size }

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
