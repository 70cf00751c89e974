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

// decodedRuns is how many finished runs keep their events as messages: those that finished
// last, whose readers are still to come.
const decodedRuns = 64

// record holds the events of a run: as messages, or packed. Events are only added, so a
// copy stays valid as a prefix.
type record struct {
	events []*teamv1.Event
	packed []byte // encoded events, each behind its length; instead of events
	count  int64  // of the packed events
}

// len returns how many events there are.
func (r *record) len() int64 { return r.count + int64(len(r.events)) }

// after returns the events after a sequence. Those of a packed record are the caller's own.
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
			if proto.Unmarshal(one, ev) != nil || !yield(ev) { // it cannot fail: pack has encoded it
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

// pack encodes the events of a record that nothing is added to any more. One that cannot
// be encoded, as it has a text that is not UTF-8, stays as it is.
func (r *record) pack() {
	sizes := make([]uint64, len(r.events))
	total := 0
	for i, ev := range r.events {
		sizes[i] = uint64(proto.Size(ev)) //nolint:gosec // not negative
		total += int(sizes[i]) + protowire.SizeVarint(sizes[i])
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

// ending is the fold of a run that has ended and is packed: nothing changes any more.
type ending struct {
	state    a2av1.TaskState
	at       time.Time
	visible  bool
	terminal bool
	task     []byte // encoded
}

func (*ending) Apply(*teamv1.Event)      {}
func (e *ending) State() a2av1.TaskState { return e.state }
func (e *ending) StatusAt() time.Time    { return e.at }
func (e *ending) Visible() bool          { return e.visible }
func (e *ending) Terminal() bool         { return e.terminal }

func (e *ending) Task() *a2av1.Task {
	t := &a2av1.Task{}
	_ = proto.Unmarshal(e.task, t) // it cannot fail: pack has encoded it
	return t
}

// pack makes a run that has ended small: its events and its task are encoded.
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
