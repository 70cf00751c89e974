package run

import (
	"slices"
	"sort"

	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// Limits of rings in bytes: of one ring, and of all rings of a process. A ring is kept after the end of its run only
// while all rings use at most maxKept, so that slow readers of ended runs do not shrink the rings of other runs.
const (
	maxRing  = 1 << 20
	maxRings = 64 << 20
	maxKept  = maxRings / 2
)

// ring holds the latest committed events of a run that this process drives, so that its readers
// need no database. It is guarded by the mu of its journal.
type ring struct {
	entries []entry
	bytes   int
}

// add appends committed events and drops the oldest ones beyond the limit.
func (r *ring) add(s *Runs, lists ...[]entry) {
	before := r.bytes
	for _, list := range lists {
		for _, e := range list {
			r.bytes += e.Size
		}
		r.entries = append(r.entries, list...)
	}
	limit := maxRing
	if s.ringed.Load() > maxRings {
		limit = maxRing / 16
	}
	drop := 0
	for ; r.bytes > limit && drop < len(r.entries); drop++ {
		r.bytes -= r.entries[drop].Size
	}
	if drop > 0 {
		r.entries = slices.Clone(r.entries[drop:])
	}
	s.ringed.Add(int64(r.bytes - before))
}

// drop empties the ring.
func (r *ring) drop(s *Runs) {
	s.ringed.Add(-int64(r.bytes))
	*r = ring{}
}

// since returns at most limit events of a scope after a sequence number. It returns false if the
// ring does not reach back that far.
func (r *ring) since(after, durable int64, scope string, limit int) ([]a2a.Record, bool) {
	if after >= durable {
		return nil, true
	}
	if len(r.entries) == 0 || r.entries[0].Event.GetSeq() > after+1 {
		return nil, false
	}
	from := sort.Search(len(r.entries), func(i int) bool { return r.entries[i].Event.GetSeq() > after })
	out := make([]a2a.Record, 0, min(len(r.entries)-from, limit))
	for _, e := range r.entries[from:] {
		if len(out) >= limit {
			break
		}
		if agent.Within(e.Event.GetScope(), scope) {
			out = append(out, a2a.Record{Seq: e.Event.GetSeq(), Event: e.Event})
		}
	}
	return out, true
}
