package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Causes of a context's end, set with context.WithCancelCause and read with
// context.Cause. They decide what an agent may still put on record.
var (
	// ErrCanceled: the caller wants the work ended. Open steps are closed.
	ErrCanceled = errors.New("canceled")
	// ErrTimeout: the time of the work ran out. Open steps are closed.
	ErrTimeout = errors.New("time ran out")
	// ErrShutdown: this process stops; another one continues. Nothing more is recorded.
	ErrShutdown = errors.New("shutting down")
	// ErrFenced: another owner has the run. Nothing more is recorded.
	ErrFenced = errors.New("another owner has the run")
)

// Code is the class of an error: the values of google.rpc.Code that are used,
// so that domain code needs no RPC library.
type Code int32

// The classes, as google.rpc.Code numbers them.
const (
	CodeInvalidArgument    Code = 3
	CodeDeadlineExceeded   Code = 4
	CodeNotFound           Code = 5
	CodePermissionDenied   Code = 7
	CodeResourceExhausted  Code = 8
	CodeFailedPrecondition Code = 9
	CodeAborted            Code = 10
	CodeUnimplemented      Code = 12
	CodeInternal           Code = 13
	CodeUnavailable        Code = 14
	CodeDataLoss           Code = 15
	CodeUnauthenticated    Code = 16
)

// Reasons of errors: the list of requirements 1.8. Wire texts; never change one.
const (
	ReasonInvalidRequest        = "INVALID_REQUEST"
	ReasonInvalidTeamConfig     = "INVALID_TEAM_CONFIG"
	ReasonTeamNotFound          = "TEAM_NOT_FOUND"
	ReasonTeamNotReady          = "TEAM_NOT_READY"
	ReasonCollaborationNotFound = "COLLABORATION_NOT_FOUND"
	ReasonWorkItemNotFound      = "WORK_ITEM_NOT_FOUND"
	ReasonInitializationFailed  = "AGENT_INITIALIZATION_FAILED"
	ReasonVersionConflict       = "VERSION_CONFLICT"
	ReasonMessageIDReused       = "MESSAGE_ID_REUSED"
	ReasonQuestionAnswered      = "QUESTION_ANSWERED"
	ReasonAgentNotFound         = "AGENT_NOT_FOUND"
	ReasonInputRequired         = "INPUT_REQUIRED"
	ReasonInsufficientResources = "INSUFFICIENT_RESOURCES"
	ReasonStoreUnavailable      = "STORE_UNAVAILABLE"
	ReasonShuttingDown          = "SHUTTING_DOWN"
	ReasonUnauthenticated       = "UNAUTHENTICATED"
	ReasonPermissionDenied      = "PERMISSION_DENIED"
	ReasonWaitTimeout           = "WAIT_TIMEOUT"
	ReasonSlowReader            = "SLOW_READER"
	ReasonDataLoss              = "DATA_LOSS"

	ReasonCollaborationInProgress = "COLLABORATION_IN_PROGRESS"

	ReasonNoResponse       = "NO_RESPONSE"
	ReasonSchedulerError   = "SCHEDULER_ERROR"
	ReasonMaxIterations    = "MAX_ITERATIONS_EXCEEDED"
	ReasonMaxRounds        = "MAX_ROUNDS_EXCEEDED"
	ReasonQuality          = "QUALITY_THRESHOLD_NOT_MET"
	ReasonBudgetExceeded   = "BUDGET_EXCEEDED"
	ReasonMaxDelegations   = "MAX_DELEGATIONS_EXCEEDED"
	ReasonMaxHandoffs      = "MAX_HANDOFFS_EXCEEDED"
	ReasonRepetitive       = "REPETITIVE_HANDOFF"
	ReasonGuardrailBlocked = "GUARDRAIL_BLOCKED"
	ReasonBreakerOpen      = "BREAKER_OPEN"
	ReasonOutcomeUnknown   = "OUTCOME_UNKNOWN"
	ReasonMaxDepth         = "MAX_DEPTH_EXCEEDED"
	ReasonCycleDetected    = "CYCLE_DETECTED"
	ReasonMemberNotFound   = "MEMBER_NOT_FOUND"
	ReasonDelegationFailed = "DELEGATION_FAILED"
	ReasonTeamError        = "TEAM_ERROR"
	ReasonTimeout          = "TIMEOUT_EXCEEDED"
	ReasonInterrupted      = "INTERRUPTED"
	ReasonJournalLimit     = "JOURNAL_LIMIT"
	ReasonUnavailable      = "UNAVAILABLE"
	ReasonDisabled         = "DISABLED"
	ReasonCanceled         = "CANCELED"
	ReasonAgentPanic       = "AGENT_PANIC"
	ReasonInternal         = "INTERNAL"
)

// Error is an error for the caller. Reason and Message cross every border;
// Err stays inside. Any other error is INTERNAL to a caller.
type Error struct {
	// Reason is one of the constants above.
	Reason string
	// Code is its class; the zero value is INTERNAL.
	Code Code
	// Message is for the caller: it names the field or member, what was
	// expected and what to do next, and nothing internal.
	Message string
	// Retry: the same call may succeed later.
	Retry bool
	// Fresh: the outcome of the attempt is known (a 429, a 500, a failed remote
	// task), so that a repetition is a new effect with a new key. Not set: it is
	// not known (a broken connection, a timeout) and the key stays.
	Fresh bool
	// RetryAfter is how long to wait at least before the call is repeated; 0 is unknown.
	RetryAfter time.Duration
	// Details are data for the caller.
	Details map[string]string
	// Violations name what is wrong with the request, field by field. Proto leaves them out.
	Violations []Violation
	// Spent is what it cost all the same; nil is nothing, or not known.
	Spent *teamv1.Spent
	// Receipt says of work that was to be ended elsewhere what became of it.
	Receipt *teamv1.Receipt
	// Err is the cause; never shown to a caller.
	Err error
}

// Violation is one fault of a request.
type Violation struct {
	// Field is the path of the field as JSON names it: message.parts[0].text.
	Field string
	// Description says what was expected.
	Description string
}

// Errorf returns an Error whose Message is made of format and args.
func Errorf(code Code, reason, format string, args ...any) *Error {
	return &Error{Code: code, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Error returns the reason, the message and the cause: for logs, not for callers.
func (e *Error) Error() string {
	s := e.Reason
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Err == nil {
		return s
	}
	cause := e.Err.Error()
	if strings.HasPrefix(cause, s) { // it is the same, with less beside it
		return cause
	}
	return s + ": " + cause
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// With returns a copy of e with one more detail.
func (e *Error) With(key, value string) *Error {
	c := *e
	c.Details = maps.Clone(e.Details)
	if c.Details == nil {
		c.Details = map[string]string{}
	}
	c.Details[key] = value
	return &c
}

// Because returns a copy of e with a cause that stays inside.
func (e *Error) Because(err error) *Error {
	c := *e
	c.Err = err
	return &c
}

// AsError returns err as an *Error. What is none, and no known end of a
// context, is INTERNAL with a text that shows nothing.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, ErrCanceled), errors.Is(err, context.Canceled):
		return &Error{Reason: ReasonCanceled, Code: CodeAborted, Message: "canceled", Err: err}
	case errors.Is(err, ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return &Error{Reason: ReasonTimeout, Code: CodeDeadlineExceeded, Message: "time ran out", Err: err}
	case errors.Is(err, ErrShutdown):
		return &Error{Reason: ReasonShuttingDown, Code: CodeUnavailable, Message: "the server is shutting down; try again", Retry: true, Err: err}
	}
	return &Error{Reason: ReasonInternal, Code: CodeInternal, Message: "internal error", Err: err}
}

// Proto returns the part of e that may go on record and over the wire.
func (e *Error) Proto() *teamv1.Error {
	if e == nil {
		return nil
	}
	code := e.Code
	if code == 0 {
		code = CodeInternal
	}
	return &teamv1.Error{Reason: e.Reason, Message: e.Message, Code: int32(code), Retry: e.Retry, Details: e.Details}
}

// FromProto returns the Error that p records.
func FromProto(p *teamv1.Error) *Error {
	if p == nil {
		return nil
	}
	return &Error{Reason: p.Reason, Code: Code(p.Code), Message: p.Message, Retry: p.Retry, Details: p.Details}
}
