package memory

import (
	"hash/maphash"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// sharedSizes caches the encoded sizes of messages that the runs of a team share and that are slow
// to measure: rosters, which may have a thousand members, and notes with details.
type sharedSizes struct {
	seed  maphash.Seed
	slots [128]atomic.Pointer[sharedSize] // indexed by a hash of the team's path and the field
}

// sharedSize is a message with its encoded size.
type sharedSize struct {
	shared proto.Message
	size   int
}

// Field numbers in Event.
const (
	scopeField    = 3
	agentField    = 4
	observedField = 25
	notedField    = 40
)

// of returns the same result as Size.
func (s *sharedSizes) of(events []*teamv1.Event) (n int64) {
	for _, ev := range events {
		n += int64(s.size(ev))
	}
	return n
}

// size returns the encoded size of an event.
func (s *sharedSizes) size(ev *teamv1.Event) int {
	var shared proto.Message
	field := protowire.Number(observedField)
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Observed:
		shared = k.Observed
	case *teamv1.Event_Noted:
		if k.Noted.GetDetails() != nil {
			shared, field = k.Noted, notedField
		}
	default:
	}
	if shared == nil || ev.GetSeq() != 0 || ev.GetTime() != nil {
		return proto.Size(ev)
	}
	n := protowire.SizeTag(field) + protowire.SizeBytes(s.payload(ev.GetAgent(), field, shared))
	if scope := ev.GetScope(); scope != "" {
		n += protowire.SizeTag(scopeField) + protowire.SizeBytes(len(scope))
	}
	if path := ev.GetAgent(); path != "" {
		n += protowire.SizeTag(agentField) + protowire.SizeBytes(len(path))
	}
	return n
}

// payload returns the encoded size of m, which is cached for the path and the field.
func (s *sharedSizes) payload(path string, field protowire.Number, m proto.Message) int {
	slot := &s.slots[(maphash.String(s.seed, path)+uint64(field))%uint64(len(s.slots))] //nolint:gosec // not negative
	if known := slot.Load(); known != nil && known.shared == m {
		return known.size
	}
	size := proto.Size(m)
	slot.Store(&sharedSize{m, size})
	return size
}
