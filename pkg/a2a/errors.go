package a2a

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Reasons of the protocol's own errors (A2A 1.0.1). Wire texts; never change one.
const (
	ReasonTaskNotFound                 = "TASK_NOT_FOUND"
	ReasonTaskNotCancelable            = "TASK_NOT_CANCELABLE"
	ReasonPushNotificationNotSupported = "PUSH_NOTIFICATION_NOT_SUPPORTED"
	ReasonUnsupportedOperation         = "UNSUPPORTED_OPERATION"
	ReasonContentTypeNotSupported      = "CONTENT_TYPE_NOT_SUPPORTED"
	ReasonInvalidAgentResponse         = "INVALID_AGENT_RESPONSE"
	ReasonExtendedCardNotConfigured    = "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
	ReasonExtensionSupportRequired     = "EXTENSION_SUPPORT_REQUIRED"
	ReasonVersionNotSupported          = "VERSION_NOT_SUPPORTED"
)

// Error is an error of the protocol, or a bad request with every fault in it.
// Reason, Message, Violations and Details cross every border; Err stays inside.
type Error struct {
	// Reason is one of the constants above, or agent.ReasonInvalidRequest.
	Reason string
	// Code is its class.
	Code agent.Code
	// Message is for the caller.
	Message string
	// Violations name what is wrong with the request, field by field.
	Violations []Violation
	// Details are data for the caller.
	Details map[string]string
	// RetryAfter is how long to wait at least before the call is repeated; 0 says nothing.
	RetryAfter time.Duration
	// Err is the cause; never shown to a caller.
	Err error
}

// Violation is one fault of a request.
type Violation = agent.Violation

// Error returns the reason, the message and the cause: for logs, not for callers.
func (e *Error) Error() string {
	s := e.Reason + ": " + e.Message
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an Error with the same reason.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Reason == e.Reason
}

// Protocol reports whether the error is one of the protocol's own, so that its
// domain is a2a-protocol.org.
func (e *Error) Protocol() bool {
	switch e.Reason {
	case ReasonTaskNotFound, ReasonTaskNotCancelable, ReasonPushNotificationNotSupported, ReasonUnsupportedOperation,
		ReasonContentTypeNotSupported, ReasonInvalidAgentResponse, ReasonExtendedCardNotConfigured,
		ReasonExtensionSupportRequired, ReasonVersionNotSupported:
		return true
	}
	return false
}

// Public returns what crosses every border, as an error of pkg/agent: all but the cause.
func (e *Error) Public() *agent.Error {
	return &agent.Error{
		Reason: e.Reason, Code: e.Code, Message: e.Message, Violations: e.Violations, Details: e.Details,
		Retry: e.RetryAfter > 0, RetryAfter: e.RetryAfter,
	}
}

// TaskNotFound is the error for a task that does not exist, or is not the caller's.
func TaskNotFound(id string) *Error {
	return &Error{Reason: ReasonTaskNotFound, Code: agent.CodeNotFound, Message: fmt.Sprintf("there is no task %q", clip(id))}
}

// TaskNotCancelable is the error for the cancel of a task that has ended.
func TaskNotCancelable(id string, state a2av1.TaskState) *Error {
	return &Error{
		Reason: ReasonTaskNotCancelable, Code: agent.CodeFailedPrecondition,
		Message: fmt.Sprintf("task %q has ended: it is %s", clip(id), stateName(state)),
	}
}

// PushNotificationNotSupported is the error of every call about webhooks where
// there are none: they are switched off, or the store keeps none.
func PushNotificationNotSupported() *Error {
	return &Error{
		Reason: ReasonPushNotificationNotSupported, Code: agent.CodeFailedPrecondition,
		Message: "push notifications are not supported; subscribe to the task instead",
	}
}

// UnsupportedOperation is the error for what cannot be done to this task or agent.
func UnsupportedOperation(format string, args ...any) *Error {
	return &Error{Reason: ReasonUnsupportedOperation, Code: agent.CodeFailedPrecondition, Message: fmt.Sprintf(format, args...)}
}

// VersionNotSupported is the error for a call in another version of the protocol.
func VersionNotSupported(version string) *Error {
	return &Error{
		Reason: ReasonVersionNotSupported, Code: agent.CodeFailedPrecondition,
		Message: fmt.Sprintf("version %q of the protocol is not supported; use %s", clip(version), ProtocolVersion),
		Details: map[string]string{"supported": ProtocolVersion},
	}
}

// ExtensionSupportRequired is the error for a call that does not activate an
// extension of the protocol that cards say is required.
func ExtensionSupportRequired(uri string) *Error {
	return &Error{
		Reason: ReasonExtensionSupportRequired, Code: agent.CodeFailedPrecondition,
		Message: fmt.Sprintf("this server wants callers that know the extension %s; name it in A2A-Extensions", uri),
		Details: map[string]string{"required": uri},
	}
}

// Faults gathers what is wrong with a request: all of it is answered together.
type Faults []Violation

// Add adds what is wrong with a field.
func (f *Faults) Add(field, format string, args ...any) {
	*f = append(*f, Violation{Field: field, Description: fmt.Sprintf(format, args...)})
}

// Err is INVALID_REQUEST with all of them; nil where there are none.
func (f Faults) Err() error {
	if len(f) == 0 {
		return nil
	}
	return Invalid(f...)
}

// Invalid is the error for a request with faults: all of them, in order.
func Invalid(faults ...Violation) *Error {
	texts := make([]string, len(faults))
	for i, f := range faults {
		texts[i] = f.Field + " " + f.Description
	}
	return &Error{
		Reason: agent.ReasonInvalidRequest, Code: agent.CodeInvalidArgument,
		Message: strings.Join(texts, "; "), Violations: faults,
	}
}

// clip bounds what an error repeats of a request.
func clip(s string) string { return clipTo(s, 128) }

// clipTo is the beginning of a text, in whole characters, of so many bytes at most.
func clipTo(s string, most int) string {
	if len(s) <= most {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ToValidUTF8(s[:most], "\uFFFD") + "…"
}

func stateName(s a2av1.TaskState) string {
	return strings.TrimPrefix(s.String(), "TASK_STATE_")
}

// mayNot is the error for an answer to roles that its giver has not.
func mayNot(q *teamv1.Question) error {
	roles := strings.Join(q.GetRoles(), ", ")
	return agent.Errorf(agent.CodePermissionDenied, agent.ReasonPermissionDenied,
		"the question goes to the roles %s, and the caller has none of them; who has one answers it, by AnswerQuestion of the monitor service", clip(roles)).
		With("roles", clip(roles)).With("question", clip(q.GetQuestion()))
}

// questionAnswered is the error for a second answer, for a caller that may read the
// task, or might have given the first.
func questionAnswered(first *teamv1.Answered) error {
	text := clipTo(agent.Text(first.GetMessage()), maxQuoted)
	return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonQuestionAnswered,
		"the question was answered by %s first: %q; this answer was not recorded", clip(first.GetBy()), text).
		With("question", clip(first.GetQuestion())).With("answered_by", clip(first.GetBy())).With("answer", text)
}

func pushNotFound(task, id string) *Error {
	e := TaskNotFound(task)
	e.Message = "task " + strconv.Quote(clip(task)) + " has no push configuration " + strconv.Quote(clip(id))
	return e
}

// tooManyPushes is the error of one configuration more than there may be.
func tooManyPushes(most int, of string) error {
	return agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources,
		"%s has %d push configurations, as many as there may be; delete one, or replace it by its id", of, most).With("max_push_configs", strconv.Itoa(most))
}
