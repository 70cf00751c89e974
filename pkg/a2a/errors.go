package a2a

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
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
	Violations []Violation
	// Details holds more information for users, by key.
	Details map[string]string
	// RetryAfter is the minimum time to wait before the call is repeated. 0 means that nothing is
	// known about that.
	RetryAfter time.Duration
	// Err is the cause. It is never shown to users.
	Err error
}

// Violation describes one invalid field of a request.
type Violation = agent.Violation

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
	return &Error{Reason: ReasonTaskNotFound, Code: agent.CodeNotFound, Message: fmt.Sprintf("there is no task %q", clip(id))}
}

// TaskNotCancelable returns the error for canceling a task that has ended in this state.
func TaskNotCancelable(id string, state a2av1.TaskState) *Error {
	return &Error{
		Reason: ReasonTaskNotCancelable, Code: agent.CodeFailedPrecondition,
		Message: fmt.Sprintf("task %q has ended: it is %s", clip(id), stateName(state)),
	}
}

// PushNotificationNotSupported returns the error for all calls about push notifications if they
// are turned off or there are no Config.Pushes.
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

// VersionNotSupported returns the error for a call in another version of the protocol.
func VersionNotSupported(version string) *Error {
	return &Error{
		Reason: ReasonVersionNotSupported, Code: agent.CodeFailedPrecondition,
		Message: fmt.Sprintf("version %q of the protocol is not supported; use %s", clip(version), ProtocolVersion),
		Details: map[string]string{"supported": ProtocolVersion},
	}
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

// Faults collects the violations of a request, so that one error reports all of them.
type Faults []Violation

// Add adds a violation for a field. The description is formatted from format and args.
func (f *Faults) Add(field, format string, args ...any) {
	*f = append(*f, Violation{Field: field, Description: fmt.Sprintf(format, args...)})
}

// Err returns an INVALID_REQUEST error with all violations, or nil if there are none.
func (f Faults) Err() error {
	if len(f) == 0 {
		return nil
	}
	return Invalid(f...)
}

// Invalid returns the INVALID_REQUEST error for a request with these violations.
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

// clip shortens a text from a request to the length that an error repeats.
func clip(s string) string { return clipTo(s, 128) }

// clipTo returns the first most bytes of s and, if that shortens it, an ellipsis. Invalid UTF-8
// is replaced.
func clipTo(s string, most int) string {
	if len(s) <= most {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ToValidUTF8(s[:most], "\uFFFD") + "…"
}

// stateName returns the name of a state without the prefix TASK_STATE_.
func stateName(s a2av1.TaskState) string {
	return strings.TrimPrefix(s.String(), "TASK_STATE_")
}

// mayNot returns the error for an answer to a question that is addressed to roles the caller does
// not have.
func mayNot(q *teamv1.Question) error {
	roles := strings.Join(q.GetRoles(), ", ")
	return agent.Errorf(agent.CodePermissionDenied, agent.ReasonPermissionDenied,
		"the question is addressed to the roles %s, and the caller has none of them; a caller with one of these roles must answer it with AnswerQuestion of the monitor service", clip(roles)).
		With("roles", clip(roles)).With("question", clip(q.GetQuestion()))
}

// questionAnswered returns the error for a second answer to a question. The caller must be
// permitted to read the task or to have given the first answer, because the error repeats that
// answer.
func questionAnswered(first *teamv1.Answered) error {
	text := clipTo(agent.Text(first.GetMessage()), maxQuoted)
	return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonQuestionAnswered,
		"the question was answered by %s first: %q; this answer was not recorded", clip(first.GetBy()), text).
		With("question", clip(first.GetQuestion())).With("answered_by", clip(first.GetBy())).With("answer", text)
}

// pushNotFound returns the error for a push configuration that the task does not have.
func pushNotFound(task, id string) *Error {
	e := TaskNotFound(task)
	e.Message = "task " + strconv.Quote(clip(task)) + " has no push configuration " + strconv.Quote(clip(id))
	return e
}

// tooManyPushes returns the error for one push configuration more than permitted.
func tooManyPushes(most int, of string) *agent.Error {
	return agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources,
		"%s has %d push configurations, the maximum; delete one, or replace one by sending its id", of, most).With("max_push_configs", strconv.Itoa(most))
}

// StoreError returns an error of the store as the caller of the API sees it. id is the task that the
// call is about; it is empty for calls about several tasks or about no task.
func StoreError(id string, err error) error {
	var answered *AnsweredError
	switch {
	case errors.As(err, &answered):
		return questionAnswered(answered.First)
	case errors.Is(err, ErrNotFound):
		return TaskNotFound(id)
	case errors.Is(err, ErrReused):
		return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonMessageIDReused,
			"message.messageId was already used with different content; use a new id")
	case errors.Is(err, ErrTerminal):
		return UnsupportedOperation("task %q has ended; send a new message without a task id, and refer to the task in referenceTaskIds", id)
	case errors.Is(err, ErrBusy):
		return &agent.Error{Reason: agent.ReasonCollaborationInProgress, Code: agent.CodeFailedPrecondition, Retry: true, RetryAfter: busyAgain, Err: err,
			Message: "the team has reached its maximum of concurrent collaborations; wait for one to end, or stop one"}
	case errors.Is(err, ErrAccountBusy):
		e := &agent.Error{Reason: agent.ReasonInsufficientResources, Code: agent.CodeResourceExhausted, Retry: true, RetryAfter: busyAgain, Err: err,
			Message: "the account has reached its max_collaborations; wait for a collaboration to end, or stop one"}
		return e.With(agent.DetailLimit, "max_collaborations").With(agent.DetailSetBy, agent.SetByAccount)
	case errors.Is(err, ErrDeleted):
		return agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "the agent has been deleted").Because(err)
	case errors.Is(err, ErrPushTask):
		return tooManyPushes(MaxPushTask, "the task")
	case errors.Is(err, ErrPushOwner):
		e := tooManyPushes(MaxPushOwner, "the caller")
		e.Retry, e.RetryAfter = true, pushAgain
		return e
	case errors.Is(err, ErrPageToken):
		return Invalid(Violation{Field: "pageToken", Description: "is not a page token of this list; omit it to start with the first page"})
	case errors.Is(err, ErrDataLoss):
		text := "stored data needed for the response is damaged; undamaged tasks can still be read by their ids. Restore a backup; the server log names the damaged data"
		if id != "" {
			text = fmt.Sprintf("the stored data of task %q is damaged; other tasks are not affected. Restore a backup to recover the task", id)
		}
		return &agent.Error{Reason: agent.ReasonDataLoss, Code: agent.CodeDataLoss, Err: err, Message: text}
	case errors.Is(err, ErrStorage):
		return &agent.Error{Reason: agent.ReasonStoreUnavailable, Code: agent.CodeUnavailable, Retry: true,
			Message: "the store is unavailable, and nothing was recorded; retry with the same message id. If the error persists, see the server log", RetryAfter: time.Second, Err: err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("store: %w", err)
}

// busyAgain is the time to wait before a collaboration of a busy team is started again.
const busyAgain = 5 * time.Second

// pushAgain is the time to wait before a caller whose webhooks have too much to receive names another one.
const pushAgain = time.Minute
