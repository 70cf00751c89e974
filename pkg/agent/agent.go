// Package agent holds what everything else stands on: the Agent contract, the
// Run that an agent works in, models and tools, and the errors they return.
//
// An agent is anything that describes itself, processes a message, and says how
// it is: a Go func, a model with tools, a process on another machine, a team.
package agent

import (
	"context"
	"iter"
	"regexp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Agent is what a team, the task handler and the Agent service work with.
// All methods are safe for concurrent use.
type Agent interface {
	// Info describes the agent. It may ask others, and ends with ctx. The result is shared:
	// read only.
	Info(ctx context.Context) (*teamv1.AgentInfo, error)

	// Process works on one call. req.Recorded holds, in order, what this very
	// call has put on record before, of its own scope and below, with answers
	// in place: Process yields only what follows. Events of the driver (the
	// call's own Accepted, Started, Retried, Waiting, Ended, Claimed) are not
	// among them.
	//
	// Yield returning true means that the event has its place in the journal:
	// Seq and Time are set. Commit makes it durable; an agent commits before it
	// touches anything outside.
	//
	// The sequence ends with a Reply event; without one after a question (Asked)
	// or a pause; or with an error, best an *Error. It stops when the caller
	// breaks or ctx ends, and leaves no goroutine. After a break, ErrShutdown or
	// ErrFenced it yields nothing more; after ErrCanceled or a deadline only the
	// Ended events of its open steps.
	//
	// An agent that ignores Recorded runs again from the start after a crash.
	Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error]

	// HealthCheck says how the agent is, member by member. A failing
	// agent is an unhealthy Health; an error means that it could not be asked.
	HealthCheck(ctx context.Context) (*teamv1.Health, error)
}

// Describer is what an Agent can be besides: one that knows its Info without asking anybody.
// Teams ask it once, and share what they put on record of it.
type Describer interface {
	Agent
	// KnownInfo returns what Info returns: the same pointer as long as nothing in it has
	// changed. nil means that only Info can say.
	KnownInfo() *teamv1.AgentInfo
}

// IDPattern is what an agent's or a team's id looks like.
const IDPattern = `[a-z0-9][a-z0-9_-]{0,62}`

var idRegexp = regexp.MustCompile(`^` + IDPattern + `$`)

// reserved words route elsewhere in URLs and cannot be ids.
var reserved = map[string]bool{
	"tasks": true, "rpc": true, "v1": true, "message": true, "extendedagentcard": true,
	"healthz": true, "readyz": true, "metrics": true, "docs": true, "assets": true,
}

// ValidID reports whether id can name an agent or a team.
func ValidID(id string) bool { return idRegexp.MatchString(id) && !reserved[id] }

// Healthy is the health of an agent with no members that works.
func Healthy() *teamv1.Health { return &teamv1.Health{Healthy: true, Usable: true} }

// Unhealthy is the health of an agent that does not work, and why.
func Unhealthy(detail string) *teamv1.Health { return &teamv1.Health{Detail: detail} }
