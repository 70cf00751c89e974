// Package engine drives the runs that are due. A Loop claims them from the store, runs each in a goroutine of its
// own, and releases each according to how its drive returned. It asks the store for due runs when Wake
// is called, when a slot becomes free, and at the time that the store named in its last answer.
package engine

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/runs"
)

// DefaultSlots is the number of runs driven at the same time if Config.Slots is not set.
const DefaultSlots = 256

// Engine decides where and when runs are driven. It is safe for concurrent use.
type Engine interface {
	// Kind returns the kind of the engine, which a database has recorded: a database has one.
	Kind() string
	// Wake tells the engine that runs may be due. Call it after the change that makes them due is
	// in the store. It does not block, and calls in quick succession count as one.
	Wake()
	// URL returns the address of a page about a run, for people who operate what schedules it; "" without one.
	URL(root string) string
	// Full reports whether a new run would have to wait for a slot.
	Full() bool
	// Serve has due runs driven until ctx ends. Then it cancels those that this process drives with the cause
	// agent.ErrShutdown and returns nil when all drives have returned. It must be called only once.
	Serve(ctx context.Context, drive Drive) error
}

// Drive continues a claimed run until it ends, has to wait, or ctx ends. The cause of ctx is
// agent.ErrShutdown when the engine stops and agent.ErrFenced when the replica has lost its leases.
type Drive = func(ctx context.Context, c runs.Claim) (runs.Park, error)

// Next says what happens to a run after it was given up. The zero value is a run that waits for an input only.
type Next struct {
	// Ended reports whether the run has ended, or no longer exists.
	Ended bool
	// At is when to drive the run again, unless an input arrives earlier; the zero time means that the run
	// waits for an input only.
	At time.Time
}

// Config sets up an engine.
type Config struct {
	// Leases hands out due runs. Required.
	Leases Leases
	// Runs is the same store, for engines other than Loop.
	Runs Runs
	// Front says that other processes drive the runs. The engine drives none, and has these learn at once of what is due.
	Front bool
	// Slots limits the number of runs driven at the same time; 0 means DefaultSlots. A parked run
	// needs no slot.
	Slots int
	// Shares says how accounts share the slots; nil means that all accounts are equal.
	Shares Shares
	// Replica names this process in its claims. It must differ from the name of every other
	// process, including earlier ones.
	Replica string
	// Ended is called when the engine has ended a run that cannot be driven. It may be nil.
	Ended func(ctx context.Context)
	// Meter measures what an engine other than Loop does; nil measures nothing.
	Meter metric.Meter
	// Log receives panics and errors of drives; nil means no log.
	Log *zap.Logger
}
