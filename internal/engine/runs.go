package engine

import (
	"context"
	"time"

	"github.com/agentteams/team-server/internal/runs"
)

// Runs is the part of a store for engines that let another service schedule runs. The store remains the truth: it says
// which runs are due, and its leases fence them. It is safe for concurrent use.
type Runs interface {
	// ClaimRun claims a run if it is due, or if the lease of the replica that has it is over. Otherwise the claim has no
	// Journal, and next says when to ask again: when the run is due, soon, if the replica has not applied the current halts,
	// or after minutes, if another replica has the run, because TakeDue returns it when that has given it up or has died. A
	// run that is due and whose account may have no more runs driven is returned by TakeDue again, and next waits for that.
	ClaimRun(ctx context.Context, replica, root string, room *Room) (c runs.Claim, next Next, err error)
	// TakeDue returns up to limit runs that are due and that no replica has, each once since it became due, and
	// to one caller; the longest due first. It first makes the runs due that replicas hold whose leases are over. Of
	// accounts for which the number of running runs is limited, it returns as many as room lets run.
	TakeDue(ctx context.Context, room *Room, limit int) ([]runs.Key, error)
	// ReturnDue has TakeDue return runs again.
	ReturnDue(ctx context.Context, roots []string) error
	// Scheduled has TakeDue leave out a run that is due at a time, because the service knows that time.
	Scheduled(ctx context.Context, root string, at time.Time) error
	// Overdue returns up to limit runs that have been due since before a time, also those that TakeDue has returned; the
	// longest due first. It leaves out those of accounts that may have no more runs driven.
	Overdue(ctx context.Context, room *Room, since time.Time, limit int) ([]runs.Key, error)
	// Standing is that of runs.Store.
	Standing(ctx context.Context, k runs.Key) (runs.Standing, error)
	// UseEngine records the kind of engine that drives the runs of the database. The error says that the database
	// belongs to another kind.
	UseEngine(ctx context.Context, kind string) error
}

// The kinds of engines.
const (
	// StoreEngine is a Loop.
	StoreEngine = "store"
	// TemporalEngine lets Temporal schedule the runs.
	TemporalEngine = "temporal"
)
