package agent

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Detacher begins tasks that outlive the run that wants them done (C-09). Safe
// for concurrent use.
type Detacher interface {
	// Detach begins a task of the run's owner, in its conversation, under the id
	// that s names. The same id begins one task, however often it is called.
	Detach(ctx context.Context, s *teamv1.Spawned) error
	// Detached returns how a task that Detach began has ended, with its message in
	// place; nil while it has not.
	Detached(ctx context.Context, taskID string) (*teamv1.Ended, error)
}
