// Package a2aerror has the errors that A2A defines, and the faults of invalid requests.
package a2aerror

import (
	"errors"
	"fmt"
	"strings"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Reasons of the errors that A2A 1.0 defines, in section 3.3.2. Clients depend on them, so they
// never change.
const (
	ReasonTaskNotFound                 = "TASK_NOT_FOUND"
	ReasonTaskNotCancelable            = "TASK_NOT_CANCELABLE"
	ReasonPushNotificationNotSupported = "PUSH_NOTIFICATION_NOT_SUPPORTED"
	ReasonUnsupportedOperation         = "UNSUPPORTED_OPERATION"
	ReasonContentTypeNotSupported      = agent.ReasonContentType
	ReasonInvalidAgentResponse         = "INVALID_AGENT_RESPONSE"
	ReasonExtendedCardNotConfigured    = "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
	ReasonExtensionSupportRequired     = "EXTENSION_SUPPORT_REQUIRED"
	ReasonVersionNotSupported          = "VERSION_NOT_SUPPORTED"
)

// Error is an error that the protocol defines, or an invalid request with all its violations. All
// fields but Err are sent to clients.
type Error struct {
	// Reason is one of the constants above, or agent.ReasonInvalidRequest.
	Reason string
	// Code is the class of the error.
	Code agent.Code
	// Message is for users: what is wrong and what to do.
	Message string
	// Violations lists the invalid fields of a request.
	Violations []agent.Violation
	// Details holds more information for users, by key.
	Details map[string]string
	// RetryAfter is the minimum time to wait before the call is repeated. 0 means that nothing is
	// known about that.
	RetryAfter time.Duration
	// Err is the cause. It is never shown to users.
	Err error
}

// Error returns the reason, the message and the cause. The text is for logs, not for users.
func (e *Error) Error() string {
	s := e.Reason + ": " + e.Message
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an *Error with the same reason.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Reason == e.Reason
}

// Protocol reports whether the protocol defines the error. The domain in its error details is
// then a2a-protocol.org.
func (e *Error) Protocol() bool {
	switch e.Reason {
	case ReasonTaskNotFound, ReasonTaskNotCancelable, ReasonPushNotificationNotSupported, ReasonUnsupportedOperation,
		ReasonContentTypeNotSupported, ReasonInvalidAgentResponse, ReasonExtendedCardNotConfigured,
		ReasonExtensionSupportRequired, ReasonVersionNotSupported:
		return true
	}
	return false
}

// Public returns e as an *agent.Error, without the cause.
func (e *Error) Public() *agent.Error {
	return &agent.Error{
		Reason: e.Reason, Code: e.Code, Message: e.Message, Violations: e.Violations, Details: e.Details,
		Retry: e.RetryAfter > 0, RetryAfter: e.RetryAfter,
	}
}

// TaskNotFound returns the error for a task that does not exist or belongs to another owner.
func TaskNotFound(id string) *Error {
	return &Error{Reason: ReasonTaskNotFound, Code: agent.CodeNotFound, Message: fmt.Sprintf("there is no task %q", Clip(id))}
}

// IsNotFound reports whether err is or wraps a TASK_NOT_FOUND error.
func IsNotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Reason == ReasonTaskNotFound
}

// IsDamaged reports whether err is or wraps a DATA_LOSS error: the record of a task cannot be
// read.
func IsDamaged(err error) bool {
	var e *agent.Error
	return errors.As(err, &e) && e.Reason == agent.ReasonDataLoss
}

// TaskNotCancelable returns the error for canceling a task that has ended in this state.
func TaskNotCancelable(id string, state a2av1.TaskState) *Error {
	return &Error{
		Reason: ReasonTaskNotCancelable, Code: agent.CodeFailedPrecondition,
		Message: fmt.Sprintf("task %q has ended: it is %s", Clip(id), StateName(state)),
	}
}

// stateName returns the name of a state without the prefix TASK_STATE_.
func StateName(s a2av1.TaskState) string {
	return strings.TrimPrefix(s.String(), "TASK_STATE_")
}

// PushNotificationNotSupported returns the error for all calls about push notifications if they
// are turned off or the store has none.
func PushNotificationNotSupported() *Error {
	return &Error{
		Reason: ReasonPushNotificationNotSupported, Code: agent.CodeFailedPrecondition,
		Message: "push notifications are not supported; subscribe to the task instead",
	}
}

// UnsupportedOperation returns the error for an operation that is not possible for this task or
// agent.
func UnsupportedOperation(format string, args ...any) *Error {
	return &Error{Reason: ReasonUnsupportedOperation, Code: agent.CodeFailedPrecondition, Message: fmt.Sprintf(format, args...)}
}

// ExtensionSupportRequired returns the error for a call that does not activate the protocol
// extension with this URI, although agent cards say that it is required.
func ExtensionSupportRequired(uri string) *Error {
	return &Error{
		Reason: ReasonExtensionSupportRequired, Code: agent.CodeFailedPrecondition,
		Message: fmt.Sprintf("this server requires the extension %s; activate it in A2A-Extensions", uri),
		Details: map[string]string{"required": uri},
	}
}

// Clip returns a text of a request as an error repeats it: see ClipTo.
func Clip(s string) string { return ClipTo(s, 128) }

// ClipTo returns the first most bytes of s and, if that shortens it, an ellipsis. Invalid UTF-8
// is replaced.
func ClipTo(s string, most int) string {
	if len(s) <= most {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ToValidUTF8(s[:most], "\uFFFD") + "…"
}
