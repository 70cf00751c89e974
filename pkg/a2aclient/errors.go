package a2aclient

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// Kinds of errors, for errors.Is.
var (
	// ErrAddress is the kind of error for an invalid address.
	ErrAddress = errors.New("invalid address")
	// ErrUnreachable is the kind of a *TransportError of a call that received no answer. The
	// server may have received the request.
	ErrUnreachable = errors.New("cannot reach the server")
	// ErrBroken is the kind of a *TransportError of a call that received a part of the
	// answer.
	ErrBroken = errors.New("the connection was lost")
	// ErrTooLarge is the kind of an *AnswerError for an answer larger than MaxAnswer or
	// MaxCard.
	ErrTooLarge = errors.New("the answer is too large")
	// ErrMoved is the kind of an *AnswerError for a redirect that is not followed.
	ErrMoved = errors.New("the server has moved")
	// ErrNoCard is the kind of error for an address without a card. It wraps a *ServerError
	// if the server answered with an error, else an *AnswerError.
	ErrNoCard = errors.New("no card")
	// ErrUntrusted is the kind of error for a card that Config.Verifier rejects. It wraps
	// the error of the Verifier.
	ErrUntrusted = errors.New("the card is not trusted")
)

// Errors of A2A, for errors.Is with a *ServerError.
var (
	ErrTaskNotFound                 error = reason("TASK_NOT_FOUND")
	ErrTaskNotCancelable            error = reason("TASK_NOT_CANCELABLE")
	ErrPushNotificationNotSupported error = reason("PUSH_NOTIFICATION_NOT_SUPPORTED")
	ErrUnsupportedOperation         error = reason("UNSUPPORTED_OPERATION")
	ErrContentTypeNotSupported      error = reason("CONTENT_TYPE_NOT_SUPPORTED")
	ErrInvalidAgentResponse         error = reason("INVALID_AGENT_RESPONSE")
	ErrExtendedCardNotConfigured    error = reason("EXTENDED_AGENT_CARD_NOT_CONFIGURED")
	ErrExtensionSupportRequired     error = reason("EXTENSION_SUPPORT_REQUIRED")
	ErrVersionNotSupported          error = reason("VERSION_NOT_SUPPORTED")
)

// reason is an error of A2A by the name of its reason.
type reason string

func (r reason) Error() string { return string(r) }

// ServerError is an error that a server answered with. errors.Is matches it with the error
// of A2A that has its reason, and errors.As converts it to an *agent.Error.
type ServerError struct {
	// Code is the gRPC code of the error. Over HTTP it is derived from the answer.
	Code codes.Code
	// Reason is the reason of the error, such as TASK_NOT_FOUND, and Domain the
	// organization that defines it, which is a2a-protocol.org for the errors of A2A. If the
	// server sent no reason, Reason is derived from Code and Domain is empty.
	Reason, Domain string
	// Message is the text of the server.
	Message string
	// Details are additional values that the server sent, or nil if it sent none.
	Details map[string]string
	// Violations describe the invalid fields of the request.
	Violations []agent.Violation
	// RetryAfter is the time to wait before the call is repeated; 0 if the server sent
	// none.
	RetryAfter time.Duration
	// HTTPStatus is the HTTP status of the answer; 0 over gRPC and for an event of a
	// stream.
	HTTPStatus int

	status *status.Status
}

// Error returns the reason and the message.
func (e *ServerError) Error() string {
	if e.Message == "" {
		return e.Reason
	}
	return e.Reason + ": " + e.Message
}

// Is reports whether target is the error of A2A with the same reason.
func (e *ServerError) Is(target error) bool {
	r, ok := target.(reason)
	return ok && e.Domain == wire.DomainA2A && e.Reason == string(r)
}

// Unwrap returns the error as an *agent.Error.
func (e *ServerError) Unwrap() error { return wire.Error(e.GRPCStatus()) }

// GRPCStatus returns the error as a gRPC status.
func (e *ServerError) GRPCStatus() *status.Status {
	if e.status == nil { // a program made the error
		return status.New(e.Code, e.Message)
	}
	return e.status
}

// refused returns the *ServerError for a status, without the token; nil if that is OK.
func (w *web) refused(st *status.Status, httpStatus int) error {
	st = wire.WithoutSecret(st, w.sent())
	var e *agent.Error
	if !errors.As(wire.Error(st), &e) {
		return nil
	}
	return &ServerError{
		Code: st.Code(), Reason: e.Reason, Domain: wire.InfoOf(st).GetDomain(), Message: st.Message(),
		Details: e.Details, Violations: e.Violations, RetryAfter: e.RetryAfter, HTTPStatus: httpStatus, status: st,
	}
}

// codeOf returns the code of a *ServerError; OK for any other error.
func codeOf(err error) codes.Code {
	var e *ServerError
	if !errors.As(err, &e) {
		return codes.OK
	}
	return e.Code
}

// TransportError is the error of a call that received no answer, or only a part of one. Its
// kind is ErrUnreachable or ErrBroken. A call that ended with its context also fails with
// it, and wraps the cause.
type TransportError struct {
	// Address is the address that was called, without a user and a path.
	Address string
	// Broken reports whether a part of the answer was received.
	Broken bool
	// Err is the cause.
	Err error

	plainGRPC bool // over gRPC without TLS
}

// Error describes the cause and, if the server speaks another protocol, how to call it.
func (e *TransportError) Error() string {
	why := wire.WhyUnreachable(e.Err)
	if e.Broken {
		return "the connection to " + wire.Redacted(e.Address) + " was lost: " + why
	}
	switch {
	case why == wire.NotHTTP, why == wire.Closed && strings.HasPrefix(e.Address, "http://"):
		why += "; to call a gRPC server, use grpc://HOST:PORT/TENANT"
	case why == wire.Closed && e.plainGRPC: // what a server with TLS does
		why += "; if the server uses TLS, use grpcs://HOST:PORT/TENANT"
	case why == wire.NotGRPC:
		why += "; to read a card, use http://HOST:PORT"
	}
	return "cannot reach " + wire.Redacted(e.Address) + ": " + why
}

// Unwrap returns the kind and the cause.
func (e *TransportError) Unwrap() []error {
	if e.Broken {
		return []error{ErrBroken, e.Err}
	}
	return []error{ErrUnreachable, e.Err}
}

// GRPCStatus returns the error as a gRPC status with the code UNAVAILABLE.
func (e *TransportError) GRPCStatus() *status.Status {
	return status.New(codes.Unavailable, e.Error())
}

// AnswerError is the error for an answer that breaks the protocol, is larger than a limit
// (ErrTooLarge) or redirects (ErrMoved).
type AnswerError struct {
	// Problem describes what is wrong with the answer.
	Problem string

	kind error
}

// Error returns the problem.
func (e *AnswerError) Error() string { return e.Problem }

// Unwrap returns the kind of the error, or nil if it has no kind.
func (e *AnswerError) Unwrap() error { return e.kind }

func badAnswer(format string, args ...any) error {
	return &AnswerError{Problem: fmt.Sprintf(format, args...)}
}

// unreadable is the error for an answer that cannot be read; err is the error of reading it.
func unreadable(err error) error { return &AnswerError{Problem: wire.AnswerFault(err)} }

func tooLarge(format string, args ...any) error {
	return &AnswerError{Problem: fmt.Sprintf(format, args...), kind: ErrTooLarge}
}

// kindError is an error of a kind, with a text and a cause of its own.
type kindError struct {
	text        string
	kind, cause error
}

func (e *kindError) Error() string { return e.text }

func (e *kindError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.kind}
	}
	return []error{e.kind, e.cause}
}

// noAddress returns the error for an invalid address; expected is the form of a valid one.
func noAddress(target, expected string) error {
	return &kindError{text: fmt.Sprintf("%q is not a valid address; expected %s", wire.Redacted(target), expected), kind: ErrAddress}
}
