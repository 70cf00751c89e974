package store

import (
	"math"
	"time"

	"github.com/agentteams/team-server/internal/runs"
)

// DefaultPageSize is the default number of tasks on a page, see A2A 1.0.
const DefaultPageSize = 50

// Oldest returns the earliest status time that a filter selects, in nanoseconds since the Unix
// epoch.
func Oldest(f runs.Filter) int64 {
	if f.StatusAfter.IsZero() || f.StatusAfter.Before(time.Unix(0, minTime)) {
		return minTime
	}
	if f.StatusAfter.After(time.Unix(0, math.MaxInt64)) {
		return math.MaxInt64
	}
	return f.StatusAfter.UnixNano()
}

// minTime is the earliest time that can be represented in nanoseconds.
const minTime = -1 << 63
