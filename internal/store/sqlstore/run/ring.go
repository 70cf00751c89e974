package run

import (
	"math"

	"github.com/agentteams/team-server/internal/ring"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
)

// maxKept is how many bytes all rings of a process may use so that a ring is kept after the end of its run: slow readers
// of ended runs do not shrink the rings of other runs.
const maxKept = ring.MaxAll / 2

// Seq implements ring.Entry.
func (e entry) Seq() int64 { return e.Event.GetSeq() }

// Bytes implements ring.Entry.
func (e entry) Bytes() int { return e.Size }

// keeps adds events that are recorded to those that readers find without the database. The caller must hold mu.
func (j *journal) keeps(lists ...[]entry) {
	for _, list := range lists {
		for _, e := range list {
			if j.ring.Len() == 0 {
				j.ring.Base = e.Seq() - 1
			}
			j.ring.Add(e, math.MaxInt64)
		}
	}
}

// recent returns at most limit recorded events of a scope after a sequence number. It returns false if the
// ring does not reach back that far. The caller must hold mu.
func (j *journal) recent(after int64, scope string, limit int) ([]runs.Record, bool) {
	if after >= j.durable {
		return nil, true
	}
	if j.ring.Len() == 0 || after < j.ring.Base {
		return nil, false
	}
	entries := j.ring.After(after)
	out := make([]runs.Record, 0, min(len(entries), limit))
	for _, e := range entries {
		if len(out) >= limit {
			break
		}
		if agent.Within(e.Event.GetScope(), scope) {
			out = append(out, runs.Record{Seq: e.Seq(), Event: e.Event})
		}
	}
	return out, true
}
