package runs

import (
	"context"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Overview is the part of a store that lists all tasks of an owner or, with Find, of an account, for monitoring.
// Implementations must be safe for concurrent use.
type Overview interface {
	// Runs returns the status of the owner's visible root tasks, latest change of status first.
	// It includes only tasks that have not ended, unless f says otherwise.
	Runs(ctx context.Context, owner string, f RunFilter) ([]RunMark, error)
	// Find returns a page of the visible root tasks that a query selects, newest first; with MinCostMicros, those that
	// have spent most first. The error is ErrPageToken.
	Find(ctx context.Context, q TaskQuery) (FoundTasks, error)
	// Collaborating returns the ids of the owner's visible root tasks with a brief, newest first:
	// ids begin with the time of their creation, so the order is descending.
	Collaborating(ctx context.Context, owner string, f RootFilter) ([]string, error)
	// WatchAll returns a channel that receives a value when a root task of the owner may be new
	// or have new events, or when a board of the owner's account has changed. A value is only a
	// hint: values may be lost or arrive without a change, so callers also poll. The caller must
	// call stop.
	WatchAll(owner string) (wake <-chan struct{}, stop func())
}

// TaskQuery selects root tasks of an account. Except for Account, the zero value of a field selects all.
type TaskQuery struct {
	// Account is the account that the tasks belong to. Required.
	Account string
	// Owner is the owner of the tasks, as account/principal.
	Owner string
	// ID is the id of the only task to return.
	ID string
	// Agent is the agent that the tasks were sent to.
	Agent string
	// ContextID is the conversation of the tasks.
	ContextID string
	// State is the state of the tasks.
	State a2av1.TaskState
	// Text has words that are all in the beginning of the message of the tasks, whatever their case and order.
	Text string
	// Since and Until bound when the tasks were created. Since is included, Until is not.
	Since, Until time.Time
	// MinCostMicros is what the tasks have spent at least, in millionths of a USD.
	MinCostMicros int64
	// PageSize is the maximum number of tasks. Required.
	PageSize int
	// PageToken is the NextToken of the previous page.
	PageToken string
}

// FoundTasks is a page of tasks.
type FoundTasks struct {
	Tasks     []*teamv1.FoundTask
	NextToken string // token of the next page; empty on the last page
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
