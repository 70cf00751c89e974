package drive

import (
	"context"
	"errors"
	"testing"

	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
)

// impatient is a journal whose commits last longer than anybody waits.
type impatient struct{ runs.Journal }

func (impatient) Commit(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// TestS_24_ACancelDuringACommit: a wait that a cancel ends is no fault of the journal,
// after which the run would rest for a while.
func TestS_24_ACancelDuringACommit(t *testing.T) {
	stopped := false
	r := &record{claim: runs.Claim{Root: "r", Journal: impatient{}}, cancel: func(error) { stopped = true }}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(agent.ErrCanceled)
	if err := r.commit(ctx); !errors.Is(err, agent.ErrCanceled) || errors.Is(err, errJournal) || r.broken.Load() != nil || stopped {
		t.Errorf("%v; the journal is broken: %v", err, r.broken.Load())
	}
}
