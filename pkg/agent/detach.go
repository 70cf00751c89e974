package agent

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Detacher begins tasks that outlive the run that wants them done. Safe
// for concurrent use.
type Detacher interface {
	// Detach begins a task of the run's owner, in its conversation, under the id
	// that s names. The same id begins one task, however often it is called.
	Detach(ctx context.Context, s *teamv1.Spawned) error
	// Detached returns how a task that Detach began has ended, with its message in
	// place; nil while it has not.
	Detached(ctx context.Context, taskID string) (*teamv1.Ended, error)
}

// Lender is an Agent whose members take something of it along when their work is a
// task of its own, as they do below it.
type Lender interface {
	// Lend returns a context for the work of a member, with what it may take. Safe
	// for concurrent use.
	Lend(ctx context.Context, member string) context.Context
}
