package wire

import (
	"net/http"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agentteams/team-server/pkg/agent"
)

// Domains of reasons.
const (
	DomainA2A  = "a2a-protocol.org"
	DomainTeam = "team-server"
)

// sizeDetail in an ErrorInfo's metadata marks a limit of size, in bytes: 413
// instead of 429.
const sizeDetail = "max_bytes"

// class is what one kind of error is on each binding.
type class struct {
	code codes.Code
	http int
	rpc  int
}

// protocol are the errors of A2A, by reason: the table of its version 1.0.1. pkg/a2a has
// the reasons as constants.
var protocol = map[string]class{
	"TASK_NOT_FOUND":                     {codes.NotFound, http.StatusNotFound, -32001},
	"TASK_NOT_CANCELABLE":                {codes.FailedPrecondition, http.StatusBadRequest, -32002},
	"PUSH_NOTIFICATION_NOT_SUPPORTED":    {codes.FailedPrecondition, http.StatusBadRequest, -32003},
	"UNSUPPORTED_OPERATION":              {codes.FailedPrecondition, http.StatusBadRequest, -32004},
	"CONTENT_TYPE_NOT_SUPPORTED":         {codes.InvalidArgument, http.StatusBadRequest, -32005},
	"INVALID_AGENT_RESPONSE":             {codes.Internal, http.StatusInternalServerError, -32006},
	"EXTENDED_AGENT_CARD_NOT_CONFIGURED": {codes.FailedPrecondition, http.StatusBadRequest, -32007},
	"EXTENSION_SUPPORT_REQUIRED":         {codes.FailedPrecondition, http.StatusBadRequest, -32008},
	"VERSION_NOT_SUPPORTED":              {codes.FailedPrecondition, http.StatusBadRequest, -32009},
}

// general are all other errors, by gRPC code. Where a JSON-RPC code stands for
// several, the first one is what it means without a reason.
var general = []class{
	{codes.InvalidArgument, http.StatusBadRequest, RPCInvalidParams},
	{codes.NotFound, http.StatusNotFound, RPCInvalidParams},
	{codes.OutOfRange, http.StatusBadRequest, RPCInvalidParams},
	{codes.FailedPrecondition, http.StatusBadRequest, -32023},
	{codes.Aborted, http.StatusConflict, -32023},
	{codes.AlreadyExists, http.StatusConflict, -32023},
	{codes.ResourceExhausted, http.StatusTooManyRequests, -32020},
	{codes.Unavailable, http.StatusServiceUnavailable, -32021},
	{codes.DeadlineExceeded, http.StatusGatewayTimeout, -32022},
	{codes.Unauthenticated, http.StatusUnauthorized, -32024},
	{codes.PermissionDenied, http.StatusForbidden, -32025},
	{codes.Unimplemented, http.StatusNotFound, RPCMethodNotFound},
	{codes.Internal, http.StatusInternalServerError, RPCInternal},
	{codes.DataLoss, http.StatusInternalServerError, RPCInternal},
	{codes.Unknown, http.StatusInternalServerError, RPCInternal},
	{codes.Canceled, 499, RPCInternal},
}

// reasons are those whose code a JSON-RPC code alone does not tell.
var reasons = map[string]codes.Code{
	agent.ReasonAgentNotFound:    codes.NotFound,
	"TEAM_NOT_FOUND":             codes.NotFound,
	"COLLABORATION_NOT_FOUND":    codes.NotFound,
	agent.ReasonWorkItemNotFound: codes.NotFound,
	"VERSION_CONFLICT":           codes.Aborted,
	agent.ReasonCanceled:         codes.Aborted,
	agent.ReasonDataLoss:         codes.DataLoss,
}

// implied are the reasons of errors that came without one.
var implied = map[codes.Code]string{
	codes.InvalidArgument:   agent.ReasonInvalidRequest,
	codes.OutOfRange:        agent.ReasonInvalidRequest,
	codes.ResourceExhausted: agent.ReasonInsufficientResources,
	codes.Unavailable:       agent.ReasonUnavailable,
	codes.DeadlineExceeded:  agent.ReasonTimeout,
	codes.Canceled:          agent.ReasonCanceled,
	codes.Internal:          agent.ReasonInternal,
	codes.Unknown:           agent.ReasonInternal,
}

// classOf returns the row of a status.
func classOf(st *status.Status) class {
	info := InfoOf(st)
	if c, ok := protocol[info.GetReason()]; ok && info.GetDomain() == DomainA2A {
		return c
	}
	for _, c := range general {
		if c.code != st.Code() {
			continue
		}
		if _, size := info.GetMetadata()[sizeDetail]; size {
			c.http = http.StatusRequestEntityTooLarge
		}
		return c
	}
	return class{codes.Unknown, http.StatusInternalServerError, RPCInternal}
}

// HTTPStatus is the REST status of st.
func HTTPStatus(st *status.Status) int {
	if st.Code() == codes.OK {
		return http.StatusOK
	}
	return classOf(st).http
}

// InfoOf returns the ErrorInfo of st, nil without one.
func InfoOf(st *status.Status) *errdetails.ErrorInfo {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	return nil
}

// codeOf is the gRPC code of a JSON-RPC error.
func codeOf(rpc int, info *errdetails.ErrorInfo) codes.Code {
	if c, ok := protocol[info.GetReason()]; ok && info.GetDomain() == DomainA2A {
		return c.code
	}
	if c, ok := reasons[info.GetReason()]; ok {
		return c
	}
	for _, c := range general {
		if c.rpc == rpc {
			return c.code
		}
	}
	if rpc == RPCParse || rpc == RPCInvalidRequest {
		return codes.InvalidArgument
	}
	return codes.Unknown
}

// protocolReason is the reason of a JSON-RPC code of A2A, for servers that send
// no details.
func protocolReason(rpc int) (string, class, bool) {
	for reason, c := range protocol {
		if c.rpc == rpc {
			return reason, c, true
		}
	}
	return "", class{}, false
}
