package agent

import (
	"context"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Middleware inspects messages: the input and output of an agent, and what a team sends to and
// receives from its members. It may change a message or block it. Implementations must be safe
// for concurrent use.
//
// Each verdict is recorded. After a crash, a recorded verdict is used again without another call;
// if none was recorded, Check is called again with the same Passing.Key.
type Middleware interface {
	// Name returns the name that appears in the record, in warnings and in errors. It is required
	// and must be the same on every call.
	Name() string
	// Check inspects one message and returns a verdict. It should return when ctx ends; if it
	// does not, it is no longer waited for, and its verdict is discarded. An error or a panic is
	// a failure of the middleware, and Guard.OnFailure decides what it means for the message. The
	// Message of an *Error is shown to users; any other error appears in the log only.
	Check(ctx context.Context, p *Passing) (Verdict, error)
}

// Passing is a message that is being inspected, with its circumstances.
type Passing struct {
	// Stage says whether the message is an input, an output, a delegation or a result; see
	// Guards.
	Stage teamv1.Checked_Stage
	// Agent is the path of the agent or team that the middleware belongs to; see Path.
	Agent string
	// Member is the id of the member that receives the message or has answered with it. It is
	// empty for the agent's own input and output.
	Member string
	// Message is a copy of the message that the middleware may modify.
	Message *a2av1.Message
	// History is a copy of the earlier messages that a member is shown in addition to Message,
	// oldest first. It is set only for a delegation.
	History []*a2av1.Message
	// Key identifies the inspection. It is the same if the inspection is repeated after a crash.
	Key string
}

// Verdict is the decision of a middleware about a message. The zero value passes the message on
// unchanged.
type Verdict struct {
	// Message replaces the message; its parts, metadata and extensions are used, its other fields
	// are ignored. Nil leaves the message unchanged.
	Message *a2av1.Message
	// History replaces the earlier messages that a member is shown. Nil leaves them unchanged.
	History []*a2av1.Message
	// Block is the reason for which the message is blocked. It is shown to the sender of the
	// message and says what is wrong with it and what to do. If it is empty, the message passes.
	Block string
}

// FailurePolicy decides what happens to a message if a middleware fails.
type FailurePolicy int

// The failure policies. The zero value is Continue.
const (
	// Continue passes the message on unchanged. The failure is logged and recorded as a warning.
	Continue FailurePolicy = iota
	// Abort blocks the message: the run fails, or the delegation that the message belongs to.
	Abort
)

// Guard is a middleware together with how it is applied.
type Guard struct {
	// Middleware inspects the messages. Required.
	Middleware Middleware
	// OnFailure decides what a failure of the middleware means. The default is Continue.
	OnFailure FailurePolicy
	// Pure promises that the middleware has no effects and always returns the same verdict for
	// the same message. It is then called without first making earlier events durable.
	Pure bool
}

// Guards lists the middlewares of an agent or team, each list in the order of application. While
// a middleware inspects a message, the agent or team does nothing else.
type Guards struct {
	// Input inspects what the agent receives, before any work begins, and further messages from
	// users during the work. A blocked message ends the run with GUARDRAIL_BLOCKED.
	Input []Guard
	// Output inspects what the agent answers, before anybody else sees it. If there is any, the
	// agent's text is not streamed, and the agent's task does not show what members said. The
	// tasks of the members still show it.
	Output []Guard
	// Delegation inspects what a team sends to a member, before the member begins: the task
	// including results of other members, and the history that the member is shown. A blocked
	// message ends the delegation with the outcome REJECTED.
	Delegation []Guard
	// Result inspects what a member has answered, before the team reads it. If there is any, the
	// text of members is not streamed. Results of detached tasks are not inspected here.
	Result []Guard
}

// Blocked returns the error GUARDRAIL_BLOCKED, for a message that a middleware blocks.
func Blocked(format string, args ...any) *Error {
	return Errorf(CodeFailedPrecondition, ReasonGuardrailBlocked, format, args...)
}
