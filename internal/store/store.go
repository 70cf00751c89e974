// Package store has what the stores share: the interface that they implement, the rules of their
// records, page tokens and URLs. Package sqlstore implements it.
package store

import (
	"context"
	"time"

	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/catalog"
	"github.com/agentteams/team-server/internal/cost"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/halt"
	"github.com/agentteams/team-server/internal/runs"
)

// Store stores everything that a server records. Every store implements all of it, and package
// storetest has its contract as tests. Code that needs only a part of it uses the interface of that
// part. A Store is safe for concurrent use.
type Store interface {
	runs.Store
	runs.Overview
	runs.Approvals
	runs.Conversations
	runs.Pushes
	engine.Backlogs
	engine.Leases
	engine.Runs
	catalog.Store
	board.Store
	account.Ledger
	account.Counts
	account.Shares
	cost.Store
	halt.Store
	audit.Store
	auth.Store
	Definitions
	// Collaborations returns the collaborations of an agent that have not ended, of all
	// owners.
	Collaborations(ctx context.Context, agent string) ([]runs.Key, error)
	// Now returns the time of the store, which all its parts use.
	Now() time.Time
	// Failed returns a channel that is closed when the store can no longer write; nil if
	// that cannot happen.
	Failed() <-chan struct{}
	// Err returns the reason why the store can no longer write, nil while it can.
	Err() error
	// Close releases the runs that this process has claimed and closes the store. No call
	// and no claim may be in use.
	Close() error
}

// Definitions stores the definitions that runs began with.
type Definitions interface {
	// PutDefinition stores a definition under its revision. If it is already stored, nothing
	// changes except that it is kept for longer.
	PutDefinition(ctx context.Context, revision string, body []byte) error
	// Definition returns a stored definition, or runs.ErrNotFound.
	Definition(ctx context.Context, revision string) ([]byte, error)
}
