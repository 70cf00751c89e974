package store

import (
	"math"
	"time"

	"github.com/agentteams/team-server/pkg/a2a"
)

// DefaultPageSize is that of A2A.
const DefaultPageSize = 50

// Oldest is the earliest status time that a filter selects.
func Oldest(f a2a.Filter) int64 {
	if f.StatusAfter.IsZero() || f.StatusAfter.Before(time.Unix(0, minTime)) {
		return minTime
	}
	if f.StatusAfter.After(time.Unix(0, math.MaxInt64)) {
		return math.MaxInt64
	}
	return f.StatusAfter.UnixNano()
}

// minTime is the earliest time that nanoseconds can tell.
const minTime = -1 << 63
