package a2a

import (
	"context"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// Overview shows the tasks of an owner side by side, for monitors. Safe for concurrent
// use.
type Overview interface {
	// Runs returns how far the owner's root tasks have come that callers can see:
	// those that have not ended, and on request those that have; newest status first.
	Runs(ctx context.Context, owner string, f RunFilter) ([]RunMark, error)
	// Collaborating returns the ids of the owner's root tasks that callers can see and
	// that were begun with a brief, newest first: ids begin with their time, so the order
	// is descending. In stores of an earlier version it may include tasks without a brief.
	Collaborating(ctx context.Context, owner string, f RootFilter) ([]string, error)
	// WatchAll returns a channel that receives when a root of the owner may be new or have
	// new events, or when a board of the owner's account has changed. A value is only a
	// hint: losing one costs time but never an event, and a value may arrive without a
	// change. stop must be called.
	WatchAll(owner string) (wake <-chan struct{}, stop func())
}

// RunFilter selects roots; the zero value selects those that have not ended.
type RunFilter struct {
	// Agent that they were given to; empty is all.
	Agent string
	// Ended selects those that have ended too: all, or those that did at or after Since.
	Ended bool
	Since time.Time
	// Limit bounds how many are returned; 0 is no limit.
	Limit int
}

// RootFilter selects ids of roots; the zero value selects all.
type RootFilter struct {
	// Agent that received the tasks; empty selects all.
	Agent string
	// Before selects the ids that sort before it; empty selects all.
	Before string
	// Limit is the maximum number of ids; 0 means no limit.
	Limit int
}

// RunMark is how far a root has come.
type RunMark struct {
	Root     string
	Agent    string
	Seq      int64 // of its last event
	State    a2av1.TaskState
	StatusAt time.Time
}
