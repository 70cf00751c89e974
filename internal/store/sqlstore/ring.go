package sqlstore

import (
	"sort"

	"google.golang.org/protobuf/proto"

	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// Rings hold at most this much, one and all of a process together.
const (
	maxRing  = 1 << 20
	maxRings = 64 << 20
)

// ring is the last committed events of a run that is driven here: its readers
// need no database. Its journal's mu guards it.
type ring struct {
	records []a2a.Record
	bytes   int
}

// add appends committed events and drops the oldest beyond what is kept.
func (r *ring) add(s *Store, records []a2a.Record) {
	if n := len(r.records); n > 0 && len(records) > 0 && records[0].Seq != r.records[n-1].Seq+1 {
		r.drop(s)
	}
	for _, rec := range records {
		n := proto.Size(rec.Event)
		r.bytes += n
		s.ringed.Add(int64(n))
	}
	r.records = append(r.records, records...)
	limit := maxRing
	if s.ringed.Load() > maxRings {
		limit = maxRing / 16
	}
	drop := 0
	for ; r.bytes > limit && drop < len(r.records); drop++ {
		n := proto.Size(r.records[drop].Event)
		r.bytes -= n
		s.ringed.Add(-int64(n))
	}
	if drop > 0 {
		r.records = append([]a2a.Record(nil), r.records[drop:]...)
	}
}

// drop empties the ring.
func (r *ring) drop(s *Store) {
	s.ringed.Add(-int64(r.bytes))
	*r = ring{}
}

// since returns the events of a scope after a sequence, at most limit; false when the
// ring does not reach back that far.
func (r *ring) since(after, durable int64, scope string, limit int) ([]a2a.Record, bool) {
	if after >= durable {
		return nil, true
	}
	if len(r.records) == 0 || r.records[0].Seq > after+1 {
		return nil, false
	}
	from := sort.Search(len(r.records), func(i int) bool { return r.records[i].Seq > after })
	out := make([]a2a.Record, 0, min(len(r.records)-from, limit))
	for _, rec := range r.records[from:] {
		if len(out) >= limit {
			break
		}
		if agent.Within(rec.Event.GetScope(), scope) {
			out = append(out, rec)
		}
	}
	return out, true
}
