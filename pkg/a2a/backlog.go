package a2a

import (
	"context"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// MaxBacklog is the largest number that a store counts for each kind of waiting work, so that counting
// remains cheap.
const MaxBacklog = 100_000

// Backlogs is the part of a store that counts what waits, of all owners, for operators.
// Implementations must be safe for concurrent use.
type Backlogs interface {
	// Backlog counts what waits at the moment.
	Backlog(ctx context.Context) (Backlog, error)
}

// Backlog is what waits in a store.
type Backlog struct {
	// Open are the root tasks that have not ended, by state, since the last change of their status.
	// At most MaxBacklog of them are counted.
	Open map[a2av1.TaskState]Waiting
	// Due are the runs that are due and not claimed, since they are due.
	Due Waiting
	// Claimed is the number of runs that are claimed.
	Claimed int64
	// Push are the push configurations with a notification that waits: those that are due and that no process
	// works on, since they are due, and those whose notification has failed and is tried again, since it first failed.
	Push Waiting
}

// Waiting is work that waits.
type Waiting struct {
	// Count is its number, at most MaxBacklog.
	Count int64
	// Oldest is since when the oldest has waited; the zero time if Count is 0.
	Oldest time.Time
}

// Add counts one more, which has waited since a time.
func (w *Waiting) Add(since time.Time) {
	if w.Count++; w.Count == 1 || since.Before(w.Oldest) {
		w.Oldest = since
	}
}
