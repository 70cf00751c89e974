package store

import (
	"hash/maphash"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// rosterSizes knows the encoded sizes of rosters that were recorded lately. The runs of a
// team share its roster, which may have a thousand members.
type rosterSizes struct {
	seed  maphash.Seed
	slots [64]atomic.Pointer[rosterSize] // by the path of the team
}

type rosterSize struct {
	roster *teamv1.Observed
	size   int
}

// observedField is the number of the field observed of an Event.
const observedField = 25

// of returns the same as Size.
func (s *rosterSizes) of(events []*teamv1.Event) (n int64) {
	for _, ev := range events {
		if o := ev.GetObserved(); o != nil {
			head := proto.Size(&teamv1.Event{Seq: ev.GetSeq(), Time: ev.GetTime(), Scope: ev.GetScope(), Agent: ev.GetAgent()})
			n += int64(head + protowire.SizeTag(observedField) + protowire.SizeBytes(s.roster(ev.GetAgent(), o)))
			continue
		}
		n += int64(proto.Size(ev))
	}
	return n
}

func (s *rosterSizes) roster(path string, o *teamv1.Observed) int {
	slot := &s.slots[maphash.String(s.seed, path)%uint64(len(s.slots))]
	if known := slot.Load(); known != nil && known.roster == o {
		return known.size
	}
	size := proto.Size(o)
	slot.Store(&rosterSize{o, size})
	return size
}
