package memory

import (
	"encoding/binary"
	"iter"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// decodedRuns is how many finished runs keep their events as messages. These are the runs that
// finished last, which are the most likely to be read.
const decodedRuns = 64

// record holds the events of a run, either as messages or encoded. Events are only added, so that a
// copy of a record stays valid as a prefix.
type record struct {
	events []*teamv1.Event
	packed []byte // used instead of events: the encoded events, each preceded by its length
	count  int64  // number of events in packed
}

// len returns the number of events.
func (r *record) len() int64 { return r.count + int64(len(r.events)) }

// after returns the events after a sequence number. The caller may change those of a packed record,
// but no others.
func (r record) after(seq int64) iter.Seq[*teamv1.Event] {
	if r.packed == nil {
		return slices.Values(r.events[min(max(seq, 0), r.len()):])
	}
	return func(yield func(*teamv1.Event) bool) {
		for n, rest := int64(1), r.packed; len(rest) > 0; n++ {
			size, head := binary.Uvarint(rest)
			one := rest[head : head+int(size)] //nolint:gosec // as pack wrote it
			rest = rest[head+int(size):]       //nolint:gosec // likewise
			if n <= seq {
				continue
			}
			ev := &teamv1.Event{}
			if proto.Unmarshal(one, ev) != nil || !yield(ev) { // cannot fail: pack has encoded it
				return
			}
		}
	}
}

// all returns all events.
func (r *record) all() []*teamv1.Event {
	if r.packed == nil {
		return r.events
	}
	return slices.AppendSeq(make([]*teamv1.Event, 0, r.count), r.after(0))
}

// pack encodes the events of a record that is complete. It does nothing if an event cannot be
// encoded, for example because of a text that is not valid UTF-8.
func (r *record) pack() {
	sizes := make([]uint64, len(r.events))
	total := 0
	for i, ev := range r.events {
		sizes[i] = uint64(proto.Size(ev))                       //nolint:gosec // not negative
		total += int(sizes[i]) + protowire.SizeVarint(sizes[i]) //nolint:gosec // as above
	}
	packed := make([]byte, 0, total)
	encode := proto.MarshalOptions{UseCachedSize: true} // events on record do not change
	for i, ev := range r.events {
		packed = binary.AppendUvarint(packed, sizes[i])
		var err error
		if packed, err = encode.MarshalAppend(packed, ev); err != nil {
			return
		}
	}
	*r = record{packed: packed, count: int64(len(r.events))}
}

// ending is the fold of a run that has ended and was packed. It never changes.
type ending struct {
	state    a2av1.TaskState
	at       time.Time
	visible  bool
	terminal bool
	task     []byte // encoded task
}

func (*ending) Apply(*teamv1.Event)      {}
func (e *ending) State() a2av1.TaskState { return e.state }
func (e *ending) StatusAt() time.Time    { return e.at }
func (e *ending) Visible() bool          { return e.visible }
func (e *ending) Terminal() bool         { return e.terminal }

// Task decodes the task.
func (e *ending) Task() *a2av1.Task {
	t := &a2av1.Task{}
	_ = proto.Unmarshal(e.task, t) // cannot fail, because pack has encoded it
	return t
}

// pack reduces the size of a run that has ended by encoding its events and its task.
func (r *run) pack() {
	r.mu.Lock()
	defer r.mu.Unlock()
	task, err := proto.Marshal(r.fold.Task())
	if err != nil {
		return
	}
	if r.record.pack(); r.record.packed != nil {
		r.fold = &ending{state: r.fold.State(), at: r.fold.StatusAt(), visible: r.fold.Visible(), terminal: r.fold.Terminal(), task: task}
	}
}
