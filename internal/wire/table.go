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

// sizeDetail is the key in the metadata of an ErrorInfo that marks an exceeded size limit, in
// bytes. Such an error has the HTTP status 413 instead of 429.
const sizeDetail = "max_bytes"

// class holds the codes of one kind of error on each binding.
type class struct {
	code codes.Code
	http int
	rpc  int
}

// protocol holds the errors that A2A 1.0.1 defines, by reason. pkg/a2a has constants for the
// reasons.
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

// general holds all other errors, by gRPC code. If several rows have the same JSON-RPC code, an
// error with this code but without a reason belongs to the first of them.
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

// reasons holds the gRPC codes of reasons whose JSON-RPC code belongs to another row of general.
var reasons = map[string]codes.Code{
	agent.ReasonAgentNotFound:    codes.NotFound,
	"TEAM_NOT_FOUND":             codes.NotFound,
	"COLLABORATION_NOT_FOUND":    codes.NotFound,
	agent.ReasonWorkItemNotFound: codes.NotFound,
	"VERSION_CONFLICT":           codes.Aborted,
	agent.ReasonCanceled:         codes.Aborted,
	agent.ReasonDataLoss:         codes.DataLoss,
}

// implied holds the reasons that errors without a reason get, by gRPC code.
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

// HTTPStatus returns the HTTP status of st in REST.
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

// codeOf returns the gRPC code of a JSON-RPC error.
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

// protocolReason returns the reason and the row of protocol for a JSON-RPC code. It is used for
// errors of servers that send no details.
func protocolReason(rpc int) (string, class, bool) {
	for reason, c := range protocol {
		if c.rpc == rpc {
			return reason, c, true
		}
	}
	return "", class{}, false
}
