package agent

import (
	"context"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Middleware looks at messages on their way: at what an agent is given and what
// it answers, at what a team gives a member and what the member answers. It may
// change the message or stop it. Safe for concurrent use.
//
// What it did is put on record. After a crash, what is on record is not asked
// again; what was not on record yet is, with the same Key.
type Middleware interface {
	// Name is shown on record, in warnings and in errors. Required, the same on
	// every call.
	Name() string
	// Check looks at one message. It should end with ctx; when it does not, it is
	// left behind and what it says then is dropped. An error, and a panic, is a
	// failure of the middleware, which its Guard decides on: of an *Error the
	// message is shown, any other goes to the log alone.
	Check(ctx context.Context, p *Passing) (Verdict, error)
}

// Passing is a message on its way.
type Passing struct {
	// Stage is which message it is.
	Stage teamv1.Checked_Stage
	// Agent is the path of the agent or team that has the middleware.
	Agent string
	// Member is the id of the member that is given the message or has answered
	// with it; empty for the agent's own input and output.
	Member string
	// Message is the middleware's own copy.
	Message *a2av1.Message
	// History is what a member is shown besides of what was said before, oldest
	// first; a copy too. Empty at the other stages.
	History []*a2av1.Message
	// Key is the same when the look is repeated after a crash.
	Key string
}

// Verdict is what a middleware makes of a message. The zero value lets it pass
// as it is.
type Verdict struct {
	// Message as it is from here on: its parts, metadata and extensions count. Nil
	// is as it was.
	Message *a2av1.Message
	// History is what a member is shown besides, from here on. Nil is as it was.
	History []*a2av1.Message
	// Block stops the message, for this reason, in words for whom the message came
	// from: what is wrong with it and what to do. Empty lets it pass.
	Block string
}

// FailurePolicy is what the failure of a middleware means.
type FailurePolicy int

// The policies.
const (
	// Continue lets the message pass as it was: the failure is logged and put on
	// record as a warning.
	Continue FailurePolicy = iota
	// Abort stops the message: the run fails, or the delegation that it was for.
	Abort
)

// Guard is a middleware in its place.
type Guard struct {
	// Middleware that looks. Required.
	Middleware Middleware
	// OnFailure is what its failure means; default: Continue.
	OnFailure FailurePolicy
	// Pure: it has no effects, and the same message always gives the same verdict.
	// What was put on record before need not be durable for it.
	Pure bool
}

// Guards are the middlewares of an agent or team, each list in its order.
// While one looks, its scope does nothing else.
type Guards struct {
	// Input looks at what the agent is given, before anything else happens, and at
	// what people say while it works. What it stops ends the run with
	// GUARDRAIL_BLOCKED.
	Input []Guard
	// Output looks at what the agent answers, before anybody else sees it:
	// the text of an agent with some is not streamed, and its task shows
	// nothing else of what members said. It stays in the tasks of the members.
	Output []Guard
	// Delegation looks at what a team gives a member, before the member begins: the
	// task with the results of others, and the history that the member is shown.
	// What it stops ends the delegation, REJECTED.
	Delegation []Guard
	// Result looks at what a member has answered, before the team reads it: text of
	// members is then not streamed. A task that goes on by itself answers nobody here.
	Result []Guard
}

// Blocked is the error of a message that a guardrail stops.
func Blocked(format string, args ...any) *Error {
	return Errorf(CodeFailedPrecondition, ReasonGuardrailBlocked, format, args...)
}
