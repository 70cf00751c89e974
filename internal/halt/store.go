// Package halt stops work on request of an operator: everything, or that of an account, a team, an
// agent, a model or a tool. The halts are in the store; a Keeper applies them in each replica, and a
// Service changes them.
package halt

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Snapshot is all halts in force, oldest first, and the version of the last change.
type Snapshot struct {
	Version int64
	Halts   []*teamv1.Halt
}

// Task is a task that a halt covers or has stopped.
type Task struct {
	// Owner of the task, as account/principal.
	Owner string
	// ID of the root task, or root~scope for a step within it.
	ID string
}

// Held is a run that a replica has claimed.
type Held struct {
	Task

	Replica string
}

// KeyOf returns the key of a halt, which is unique among those of its kind: its name, or that of agent.KeyOf for a team
// or an agent.
func KeyOf(h *teamv1.Halt) string { return agent.KeyOf(h.GetAccount(), h.GetName()) }

// May decides in the transaction of a change whether it is made. present is the halt of the subject
// that is in force, nil if the subject is not halted. An error prevents the change, which returns it.
// May must not call the store, and may be called again. A nil May allows every change.
type May func(present *teamv1.Halt) error

// Allow calls may unless it is nil.
func (may May) Allow(present *teamv1.Halt) error {
	if may == nil {
		return nil
	}
	return may(present)
}

// Store stores halts. It is safe for concurrent use.
type Store interface {
	// Halts returns the halts in force.
	Halts(ctx context.Context) (Snapshot, error)
	// HaltVersion returns the version of the last change, 0 before the first.
	HaltVersion(ctx context.Context) (int64, error)
	// Halt puts a halt in force in place of one with the same kind and key, and sets its version. It
	// records the runs in progress that the halt covers as a whole: those of the server, of the account, or
	// of the agent. If the halt cancels runs, a covered run without a lease becomes due at once, so that
	// a replica claims and cancels it. If the halt pauses runs, a run that waits for an input or is
	// already paused is not recorded.
	Halt(ctx context.Context, h *teamv1.Halt, may May) error
	// ReachRuns records runs and makes them due like Halt, for a halt that is in force: those that
	// replicas have begun or parked before they acknowledged the halt.
	ReachRuns(ctx context.Context, h *teamv1.Halt) error
	// EndHalt ends the halt with a kind and a key, and returns it. It returns nil if no such halt is
	// in force. All runs that a halt has paused become due at once; see runs.Park.
	EndHalt(ctx context.Context, kind teamv1.HaltKind, key string, may May) (*teamv1.Halt, error)
	// AcknowledgeHalts records that a replica has applied all changes up to a version, and that it has
	// stopped steps of tasks because of the halts in force with the given versions.
	AcknowledgeHalts(ctx context.Context, replica string, version int64, stopped map[int64][]Task) error
	// HaltsBehind returns the replicas that have not applied a version and whose lease has not expired.
	// It does not return self, which is a replica of this process; self is empty for none.
	HaltsBehind(ctx context.Context, version int64, self string) ([]string, error)
	// HeldBehind returns up to limit runs in progress that other replicas than self have claimed which have not applied a
	// version, also those whose lease has expired.
	HeldBehind(ctx context.Context, version int64, self string, limit int) ([]Held, error)
	// HaltsApplied returns the replicas that have applied a version.
	HaltsApplied(ctx context.Context, version int64) ([]string, error)
	// RecordHalted records tasks and steps that the halt with a version has stopped, if it is in force.
	RecordHalted(ctx context.Context, version int64, tasks []Task) error
	// HaltedTasks returns up to limit tasks and steps that the halt with a version has stopped, ordered
	// by their ids, and how many there are. They are forgotten when the halt ends or is replaced.
	HaltedTasks(ctx context.Context, version int64, limit int) (tasks []Task, total int, err error)
	// WatchHalts returns a channel that receives a value when the halts may have changed, or a replica
	// may have acknowledged them. Values may be lost, so callers also poll. The caller must call stop.
	WatchHalts() (wake <-chan struct{}, stop func())
}
