package agent

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Detacher starts detached tasks: tasks that continue after the run that started them has ended.
// The server implements it and sets it in Run.Detacher; teams call it for detached delegations.
// Implementations must be safe for concurrent use.
type Detacher interface {
	// Detach starts the task that s describes, with the id s.TaskId, for the owner of the run and
	// in the conversation of the run. The task is durable when Detach returns nil. Detach is
	// idempotent: further calls with the same task id start nothing.
	Detach(ctx context.Context, s *teamv1.Spawned) error
	// Detached returns how a task started by Detach has ended, including its reply message. It
	// returns nil and no error if the task has not ended.
	Detached(ctx context.Context, taskID string) (*teamv1.Ended, error)
}

// Lender is an optional interface of an Agent with members, whose members inherit something from
// it, such as a model or a retry policy. A member that works in a detached task runs outside of
// its team; the driver of that task calls Lend so that the member inherits the same as within the
// team.
type Lender interface {
	// Lend returns a context derived from ctx that carries what the member with this id inherits.
	// The driver passes it to the member's Process. Implementations must be safe for concurrent
	// use.
	Lend(ctx context.Context, member string) context.Context
}
