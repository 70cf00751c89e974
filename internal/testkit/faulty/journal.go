package faulty

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
)

// journal wraps the journal of a claim and injects the faults of its store.
type journal struct {
	runs.Journal
	store *Store
}

// inner returns a claim as the wrapped store has made it.
func inner(c runs.Claim) runs.Claim {
	if j, ok := c.Journal.(*journal); ok {
		c.Journal = j.Journal
	}
	return c
}

// Load implements runs.Journal.
func (j *journal) Load(ctx context.Context) ([]*teamv1.Event, error) {
	if after, err := j.store.meet(ctx, Load); err != nil || after != nil {
		return nil, first(err, after)
	}
	return j.Journal.Load(ctx)
}

// Append implements runs.Journal.
func (j *journal) Append(ctx context.Context, events ...*teamv1.Event) error {
	return j.store.do(ctx, Append, func() error { return j.Journal.Append(ctx, events...) })
}

// Commit implements runs.Journal.
func (j *journal) Commit(ctx context.Context) error {
	return j.store.do(ctx, Commit, func() error { return j.Journal.Commit(ctx) })
}

// Inbound implements runs.Journal.
func (j *journal) Inbound(ctx context.Context) ([]*teamv1.Inbound, error) {
	if after, err := j.store.meet(ctx, Inbound); err != nil || after != nil {
		return nil, first(err, after)
	}
	return j.Journal.Inbound(ctx)
}
