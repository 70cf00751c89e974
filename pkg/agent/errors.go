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

// Causes with which the contexts of runs and steps are canceled; see context.WithCancelCause and
// context.Cause. They decide which events an agent may still record.
var (
	// ErrCanceled means that the caller canceled the work. Open steps are ended in the record.
	ErrCanceled = errors.New("canceled")
	// ErrTimeout means that the work has exceeded its timeout. Open steps are ended in the
	// record.
	ErrTimeout = errors.New("time ran out")
	// ErrShutdown means that this process stops and another one continues the run. Nothing more
	// may be recorded.
	ErrShutdown = errors.New("shutting down")
	// ErrFenced means that another process owns the run now. Nothing more may be recorded.
	ErrFenced = errors.New("another owner has the run")
)

// Code is the class of an error. The values are those of google.rpc.Code that this module uses.
// It is a type of its own so that this package does not import gRPC.
type Code int32

// The error classes, with the numbers of google.rpc.Code.
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

// Reasons of errors; docs/errors.md explains each. Clients depend on them, so they never change.
const (
	ReasonInvalidRequest        = "INVALID_REQUEST"
	ReasonContentType           = "CONTENT_TYPE_NOT_SUPPORTED"
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
	ReasonAuditRecordDeleted    = "AUDIT_RECORD_DELETED"

	ReasonCollaborationInProgress = "COLLABORATION_IN_PROGRESS"

	ReasonNoResponse           = "NO_RESPONSE"
	ReasonSchedulerError       = "SCHEDULER_ERROR"
	ReasonConditionDataMissing = "CONDITION_DATA_MISSING"
	ReasonRepeatedCall         = "REPEATED_CALL"
	ReasonContextTooLong       = "CONTEXT_TOO_LONG"
	ReasonAnswerTruncated      = "ANSWER_TRUNCATED"
	ReasonAnswerFiltered       = "ANSWER_FILTERED"
	ReasonMaxIterations        = "MAX_ITERATIONS_EXCEEDED"
	ReasonMaxRounds            = "MAX_ROUNDS_EXCEEDED"
	ReasonQuality              = "QUALITY_THRESHOLD_NOT_MET"
	ReasonRequiredWork         = "REQUIRED_WORK_FAILED"
	ReasonBudgetExceeded       = "BUDGET_EXCEEDED"
	ReasonApprovalRejected     = "APPROVAL_REJECTED"
	ReasonAccountLimit         = "ACCOUNT_LIMIT_REACHED"
	ReasonMaxDelegations       = "MAX_DELEGATIONS_EXCEEDED"
	ReasonMaxHandoffs          = "MAX_HANDOFFS_EXCEEDED"
	ReasonRepetitive           = "REPETITIVE_HANDOFF"
	ReasonGuardrailBlocked     = "GUARDRAIL_BLOCKED"
	ReasonBreakerOpen          = "BREAKER_OPEN"
	ReasonOutcomeUnknown       = "OUTCOME_UNKNOWN"
	ReasonMaxDepth             = "MAX_DEPTH_EXCEEDED"
	ReasonCycleDetected        = "CYCLE_DETECTED"
	ReasonMemberNotFound       = "MEMBER_NOT_FOUND"
	ReasonDelegationFailed     = "DELEGATION_FAILED"
	ReasonTeamError            = "TEAM_ERROR"
	ReasonTimeout              = "TIMEOUT_EXCEEDED"
	ReasonInterrupted          = "INTERRUPTED"
	ReasonJournalLimit         = "JOURNAL_LIMIT"
	ReasonUnavailable          = "UNAVAILABLE"
	ReasonDisabled             = "DISABLED"
	ReasonHalted               = "HALTED"
	ReasonCanceled             = "CANCELED"
	ReasonAgentPanic           = "AGENT_PANIC"
	ReasonInternal             = "INTERNAL"
)

// Error is an error whose Reason and Message are meant for users and are sent to clients and
// other servers. The cause, Err, appears in logs only. Any error that is not an *Error reaches
// users as INTERNAL without its text. An Error must not be modified once it has been returned;
// With and Because return copies.
type Error struct {
	// Reason identifies the kind of error. It is one of the Reason constants.
	Reason string
	// Code is the class of the error. 0 means CodeInternal.
	Code Code
	// Message is for users. It names the field or member concerned, says what was expected and
	// what to do, and contains nothing internal.
	Message string
	// Retry says that the same call may succeed later.
	Retry bool
	// Elsewhere says that another model may answer, although the same call to this one would fail again.
	Elsewhere bool
	// Fresh says that the outcome of the failed attempt is known, as after an HTTP 429 or 500
	// response or a failed remote task. A retry is then a new call with a new key. If it is
	// false, the outcome is unknown, as after a broken connection or a timeout, and a retry uses
	// the same key.
	Fresh bool
	// Answered says that the agent has answered with this error, as the end of a task: the error is
	// about the work, not about whether the agent can be called. Proto does not include it.
	Answered bool
	// RetryAfter is the minimum time to wait before a retry. 0 means unknown.
	RetryAfter time.Duration
	// Details holds more information for users, by key. Nil means none.
	Details map[string]string
	// Violations lists the invalid fields of a request. Proto does not include them.
	Violations []Violation
	// Spent is what the failed call cost; if it is marked as estimated, the call may have cost more.
	// Nil means nothing if Fresh is set, and otherwise unknown.
	Spent *teamv1.Spent
	// Receipt says, for work on another server that was canceled, whether it has ended. Nil means
	// that there was no such work.
	Receipt *teamv1.Receipt
	// Err is the cause. It is never shown to users. It may be nil.
	Err error
}

// Violation describes one invalid field of a request.
type Violation struct {
	// Field is the path of the field in JSON notation, such as message.parts[0].text.
	Field string
	// Description says what was expected.
	Description string
}

// Errorf returns an Error whose Message is formatted from format and args, as by fmt.Sprintf. %w
// is not supported; see Because.
func Errorf(code Code, reason, format string, args ...any) *Error {
	return &Error{Code: code, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Error returns the reason, the message and the cause. The text is for logs, not for users.
func (e *Error) Error() string {
	s := e.Reason
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Err == nil {
		return s
	}
	cause := e.Err.Error()
	if strings.HasPrefix(cause, s) { // e repeats its cause, which says more
		return cause
	}
	return s + ": " + cause
}

// MayBeBilled reports whether the failed call may have cost more than Spent: the amounts are marked
// as estimated, or there are none and the outcome of the call is unknown.
func (e *Error) MayBeBilled() bool {
	return e.Spent.GetEstimated() || e.Spent == nil && !e.Fresh
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// With returns a copy of e with one more entry in Details. e is not changed.
func (e *Error) With(key, value string) *Error {
	c := *e
	c.Details = maps.Clone(e.Details)
	if c.Details == nil {
		c.Details = map[string]string{}
	}
	c.Details[key] = value
	return &c
}

// Because returns a copy of e with err as its cause. e is not changed.
func (e *Error) Because(err error) *Error {
	c := *e
	c.Err = err
	return &c
}

// AsError returns the *Error that err is or wraps. The causes defined in this package and the
// errors of contexts get their own reasons; any other error becomes INTERNAL, with err as its
// cause and a message that reveals nothing. It returns nil if err is nil.
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

// Proto returns the part of e that is recorded and sent to clients. It returns nil if e is nil.
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

// FromProto returns the Error that p represents, or nil if p is nil.
func FromProto(p *teamv1.Error) *Error {
	if p == nil {
		return nil
	}
	return &Error{Reason: p.Reason, Code: Code(p.Code), Message: p.Message, Retry: p.Retry, Details: p.Details}
}

// Keys in the Details of an error that reports an exceeded limit, and values of them.
const (
	// DetailLimit is the key of the limit's name, such as max_tokens, max_cost or max_steps.
	DetailLimit = "limit"
	// DetailValue is the key of the limit's value: tokens, USD, or a count.
	DetailValue = "value"
	// DetailSetBy is the key of the path of the agent that set the limit, or of SetByCaller.
	DetailSetBy = "set_by"
	// DetailAccount is the key of the account, if the limit is one of an account. DetailPrincipal is that
	// of the principal, if it is one of each principal of the account.
	DetailAccount   = "account"
	DetailPrincipal = "principal"
	// LimitMaxTokens and LimitMaxCost are the values of DetailLimit for the limits of a budget.
	LimitMaxTokens = "max_tokens"
	LimitMaxCost   = "max_cost"
	// SetByCaller is the value of DetailSetBy if the limit is what the caller's budget has left.
	SetByCaller = "caller"
	// SetByAccount is the value of DetailSetBy if the limit is one of the account.
	SetByAccount = "account"
)

// Binds reports whether err is about a limit that holds for the agent at path as a whole: the
// agent's own, one above it, the caller's, or the account's. The agent then cannot continue. If Binds returns
// false, err is, for the agent, like any other failure of a member. It considers the limits on
// the budget, steps, turns and delegations, but not on hand-offs.
func Binds(err *Error, path string) bool {
	if err == nil {
		return false
	}
	by := err.Details[DetailSetBy]
	switch err.Reason {
	case ReasonBudgetExceeded, ReasonMaxIterations, ReasonMaxDelegations:
	case ReasonAccountLimit:
		return by == SetByAccount
	default:
		return false
	}
	return by == SetByCaller || by != "" && (by == path || strings.HasPrefix(path, by+"/"))
}

// Judgement is what the result of a call says about whether the agent that was called works.
// Circuit breakers use it.
type Judgement int

// The judgements.
const (
	// JudgementNone means that the result says nothing about the agent: the call was canceled or
	// was not made.
	JudgementNone Judgement = iota
	// JudgementAnswered means that the agent answered, even if its answer is a refusal, a question
	// or a failure of the work that it was given.
	JudgementAnswered
	// JudgementFailed means that the agent does not work for any caller: it cannot be reached, does
	// not answer, or says that it is overloaded or down.
	JudgementFailed
)

// JudgementOf returns the judgement for the error of a call. A nil error is an answer. So that the
// input of one caller does not stop the calls of others, only an error that says that the agent is
// down counts as failed: the classes UNAVAILABLE and DEADLINE_EXCEEDED, an HTTP 429 response, and
// INSUFFICIENT_RESOURCES, unless its details name a limit, such as that of the size, and the error
// names no time after which to try again.
// The error of a task that has ended, which is Answered, counts as an answer like every other
// error; cancellations count as none.
func JudgementOf(err error) Judgement {
	e := AsError(err)
	switch {
	case e == nil || e.Answered:
		return JudgementAnswered
	case e.Reason == ReasonCanceled || e.Reason == ReasonShuttingDown || e.Reason == ReasonBreakerOpen:
		return JudgementNone
	case e.Code == CodeUnavailable || e.Code == CodeDeadlineExceeded:
		return JudgementFailed
	case e.Code == CodeResourceExhausted && (e.Reason == ReasonUnavailable || e.Reason == ReasonInsufficientResources && (e.RetryAfter > 0 || len(e.Details) == 0)):
		return JudgementFailed
	}
	return JudgementAnswered
}

// CutWarning is the warning of a run whose agent accepts an answer that a limit of output tokens has cut.
const CutWarning = "a limit of output tokens cut the answer (on_truncated: accept)"
