package remote

import (
	"errors"
	"maps"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/agent"
)

// maxText is the limit of a text of a peer in an error, in bytes.
const maxText = 1024

// failure converts the error of a call to a peer to the error for our caller. It keeps the
// reason, code and text of the peer, but no address. The error is Fresh, so that a retry uses
// a new key, only if the outcome of the call is known. It returns other errors unchanged.
func failure(id string, err error) error {
	var (
		answer *a2aclient.AnswerError
		none   *a2aclient.TransportError
	)
	switch {
	case errors.Is(err, a2aclient.ErrTooLarge):
		return tooLarge(id, err)
	case errors.Is(err, a2aclient.ErrMoved):
		return senseless(id, "redirects calls to another address", err)
	case errors.As(err, &answer):
		return senseless(id, "violated the protocol: "+clip(answer.Problem), err)
	case errors.As(err, &none):
		return unreachable(id, none.Err)
	}
	st, ok := status.FromError(err)
	if !ok || st.Code() == codes.OK {
		return err
	}
	switch st.Code() {
	case codes.Unavailable, codes.Canceled:
		if wire.InfoOf(st) == nil {
			return unreachable(id, err)
		}
		return peerError(st, true, false)
	case codes.DeadlineExceeded:
		return peerError(st, true, false)
	case codes.ResourceExhausted:
		if wire.IsOversized(st) {
			return tooLarge(id, err)
		}
		// A limit of an account may last for a day, and a refusal with details and no time to wait is
		// about the request itself, such as its size.
		info := wire.InfoOf(st)
		again := info.GetReason() != agent.ReasonAccountLimit && (wire.RetryAfter(st) > 0 || len(info.GetMetadata()) == 0)
		return peerError(st, again, true)
	case codes.Unauthenticated, codes.PermissionDenied:
		e := peerError(st, false, true)
		e.Message = "agent " + strconv.Quote(id) + " refused our credentials; check its auth setting"
		return e
	case codes.Internal, codes.Unknown:
		if wire.InfoOf(st) == nil {
			return peerError(st, true, false) // as likely the connection's as the agent's
		}
	}
	return peerError(st, false, true)
}

// peerError returns the error that a peer answered with.
func peerError(st *status.Status, retry, fresh bool) *agent.Error {
	bare := agent.AsError(wire.Error(status.New(st.Code(), st.Message())))
	e := &agent.Error{Reason: bare.Reason, Code: bare.Code, Message: clip(st.Message()), Retry: retry, Fresh: fresh, RetryAfter: wire.RetryAfter(st), Err: st.Err()}
	if info := wire.InfoOf(st); info != nil {
		e.Reason, e.Details = clip(info.GetReason()), maps.Clone(info.GetMetadata())
	}
	return e
}

// unreachable returns the error for a peer that did not answer.
func unreachable(id string, err error) *agent.Error {
	err = egress.WithoutURL(err)
	if wire.WhyUnreachable(err) == wire.NotAllowed {
		return &agent.Error{
			Reason: agent.ReasonUnavailable, Code: agent.CodeUnavailable, Fresh: true, Err: err,
			Message: "agent " + strconv.Quote(id) + " cannot be reached: its card names an address that is neither public nor in server.egress.allow",
		}
	}
	return &agent.Error{
		Reason: agent.ReasonUnavailable, Code: agent.CodeUnavailable, Retry: true, Err: err,
		Message: "agent " + strconv.Quote(id) + " cannot be reached: " + wire.WhyUnreachable(err) + "; try again later",
	}
}

// broken returns the error for a stream that ended without a result.
func broken(id string) error {
	return &agent.Error{
		Reason: agent.ReasonUnavailable, Code: agent.CodeUnavailable, Retry: true,
		Message: "the connection to agent " + strconv.Quote(id) + " ended before the response",
	}
}

// lost returns the error for a task that the peer no longer knows. A retry begins a new one.
func lost(id string, err error) error {
	return &agent.Error{
		Reason: agent.ReasonUnavailable, Code: agent.CodeAborted, Retry: true, Fresh: true, Err: err,
		Message: "agent " + strconv.Quote(id) + " has lost the task",
	}
}

// cutOff returns the error for a completed task whose answer has begun in a stream that broke, and
// that no longer has it. A retry begins a new one.
func cutOff(id string, spent *teamv1.Spent) error {
	return &agent.Error{
		Reason: agent.ReasonUnavailable, Code: agent.CodeAborted, Retry: true, Fresh: true, Answered: true, Spent: spent,
		Message: "agent " + strconv.Quote(id) + " has completed the task, but its stream ended before the answer was there, and the task does not have it",
	}
}

// isLost reports whether a peer's error says that it does not know a task.
func isLost(err error) bool {
	return codeOf(err) == codes.NotFound && reasonOf(err) != agent.ReasonAgentNotFound
}

// senseless returns the error for a peer that breaks the protocol.
func senseless(id, what string, err error) error {
	e := agent.Errorf(agent.CodeInternal, reasonInvalidResponse, "agent %q %s", id, what)
	e.Fresh, e.Err = true, err
	return e
}

// tooLarge returns the error for an answer or event that is larger than maxBody.
func tooLarge(id string, err error) error {
	return senseless(id, "sent more than "+strconv.Itoa(maxBody)+" bytes at once; it must send less, or send it in pieces", err)
}

// unfinished reports whether the state of a task is unknown after an error: the connection
// broke, or the deadline passed.
func unfinished(id string, err error) bool {
	e := agent.AsError(failure(id, err))
	return e.Retry && !e.Fresh
}

// reasonInvalidResponse is the reason of A2A for an answer that breaks the protocol.
const reasonInvalidResponse = "INVALID_AGENT_RESPONSE"

// canceled returns the error of a call that was canceled. confirmed reports whether the peer
// has ended its task.
func canceled(id string, confirmed bool) *agent.Error {
	e := &agent.Error{Reason: agent.ReasonCanceled, Code: agent.CodeAborted, Err: agent.ErrCanceled, Fresh: confirmed, Message: "canceled"}
	if !confirmed {
		e.Message = "canceled; agent " + strconv.Quote(id) + " has not confirmed it"
	}
	return e
}

// clip returns a text of another server, cleaned, with at most maxText bytes, and an ellipsis if some were
// cut.
func clip(s string) string { return cut(clean(s), maxText) }

// clean removes what can change how a text of another server, or what follows it, is shown: control
// characters but newlines and tabs, those that change the direction of writing, line and paragraph
// separators, and bytes that are not UTF-8.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
			return -1
		}
		return r
	}, s)
}

// cut returns a text with at most n bytes, and an ellipsis if some were cut.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// reasonOf returns the reason that a peer sent with an error; empty if there is none.
func reasonOf(err error) string {
	st, ok := status.FromError(err)
	if !ok {
		return ""
	}
	return wire.InfoOf(st).GetReason()
}

// codeOf returns the code of a peer's error; codes.OK for any other error.
func codeOf(err error) codes.Code {
	st, ok := status.FromError(err)
	if !ok {
		return codes.OK
	}
	return st.Code()
}
