package runs

import (
	"context"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
)

// Journal gives the process that has claimed a run access to its events and its inbox. It is safe
// for concurrent use.
type Journal interface {
	// Load returns the recorded events that a replay needs, in order.
	Load(ctx context.Context) ([]*teamv1.Event, error)
	// Append adds events to the journal and sets the Seq and Time of each. For the event that
	// ends the run, they may be set later, but before Commit returns. The events are not durable
	// before Commit returns. Append blocks only while its queue is full. Errors: ErrFenced,
	// ErrLimit.
	Append(ctx context.Context, e ...*teamv1.Event) error
	// Commit returns when all events that have been appended are durable and visible to readers.
	// Errors: ErrFenced, ErrStorage.
	Commit(ctx context.Context) error
	// Inbound returns the inputs that no event has recorded yet, in order.
	Inbound(ctx context.Context) ([]*teamv1.Inbound, error)
	// State calls read with the state of the run after Load and all events that have been appended. read must not
	// keep it, and must not call the journal.
	State(read func(*journal.Summary))
	// Wake returns a channel that receives a value when the inbox may have changed.
	Wake() <-chan struct{}
}

// Record is a committed event with its position in the journal.
type Record struct {
	Seq   int64
	Event *teamv1.Event // shared; do not modify
}

// Claim is the exclusive right to run a root task. Epoch grows with each claim of the run; the
// store rejects writes under an earlier epoch.
type Claim struct {
	Root    string
	Owner   string
	Epoch   int64
	Journal Journal
	// Bytes is the size of the recorded events.
	Bytes int64
}

// Park says how a process gives up a claimed run. Done means that the run has ended. Otherwise
// the run is due again at Until, or when an input arrives; a zero Until means that it waits for
// an input only.
//
// Halts is not 0 if a halt has paused the run. It is the version of the halts that the process has
// seen. The run is then also due when a halt ends, and at once if the halts have another version.
type Park struct {
	Done  bool
	Until time.Time
	Halts int64
}
