package a2a

import (
	"context"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// Overview is the part of a store that lists all tasks of an owner, for monitoring.
// Implementations must be safe for concurrent use.
type Overview interface {
	// Runs returns the status of the owner's visible root tasks, latest change of status first.
	// It includes only tasks that have not ended, unless f says otherwise.
	Runs(ctx context.Context, owner string, f RunFilter) ([]RunMark, error)
	// Collaborating returns the ids of the owner's visible root tasks with a brief, newest first:
	// ids begin with the time of their creation, so the order is descending.
	Collaborating(ctx context.Context, owner string, f RootFilter) ([]string, error)
	// WatchAll returns a channel that receives a value when a root task of the owner may be new
	// or have new events, or when a board of the owner's account has changed. A value is only a
	// hint: values may be lost or arrive without a change, so callers also poll. The caller must
	// call stop.
	WatchAll(owner string) (wake <-chan struct{}, stop func())
}

// RunFilter selects root tasks. The zero value selects all that have not ended.
type RunFilter struct {
	// Agent selects the tasks that were sent to this agent. Empty selects all.
	Agent string
	// Ended also selects tasks that have ended: all of them, or those that ended at or after
	// Since if it is set.
	Ended bool
	Since time.Time
	// Limit is the maximum number of results. 0 means no limit.
	Limit int
}

// RootFilter selects ids of root tasks. The zero value selects all.
type RootFilter struct {
	// Agent selects the tasks that were sent to this agent. Empty selects all.
	Agent string
	// Before selects the ids that sort before it. Empty selects all.
	Before string
	// Limit is the maximum number of ids. 0 means no limit.
	Limit int
}

// RunMark is the status of a root task.
type RunMark struct {
	Root     string
	Agent    string
	Seq      int64 // sequence number of the last event
	State    a2av1.TaskState
	StatusAt time.Time
}
