package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agentteams/team-server/pkg/agent"
)

// retryAfter is what a caller is told to wait where nothing better is known.
const retryAfter = time.Second

// Status is the gRPC form of an error; every other form is made of it. Only
// what is meant for callers crosses: the text of an unknown error does not.
func Status(err error) *status.Status {
	if err == nil {
		return nil
	}
	// A status of ours; one of a peer that was wrapped stays inside.
	if s, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		return s.GRPCStatus()
	}
	e, domain := agent.AsError(err), DomainTeam
	var p protocolError
	if errors.As(err, &p) && !errors.As(err, new(*agent.Error)) {
		if e = p.Public(); p.Protocol() {
			domain = DomainA2A
		}
	}
	c := codes.Code(e.Proto().GetCode()) //nolint:gosec // google.rpc.Code, checked by its producer
	details := []detail{infoFor(domain, e.Reason, e.Details)}
	if len(e.Violations) > 0 {
		bad := &errdetails.BadRequest{}
		for _, v := range e.Violations {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: v.Field, Description: v.Description})
		}
		details = append(details, bad)
	}
	if wait := cmp.Or(e.RetryAfter, retryAfter); e.Retry {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	return detailed(status.New(c, e.Message), details...)
}

// protocolError is the error of a handler of A2A: *a2a.Error of pkg/a2a.
type protocolError interface {
	error
	// Protocol reports whether the error is one of the protocol's own.
	Protocol() bool
	// Public returns what is meant for callers.
	Public() *agent.Error
}

// detail is a message among the details of a status.
type detail = protoadapt.MessageV1

func infoFor(domain, reason string, metadata map[string]string) detail {
	return &errdetails.ErrorInfo{Domain: domain, Reason: reason, Metadata: metadata}
}

// detailed adds details; a text that is no UTF-8 loses them rather than the error.
func detailed(st *status.Status, details ...detail) *status.Status {
	if with, err := st.WithDetails(details...); err == nil {
		return with
	}
	return st
}

// Error is the error that a status carries, nil for OK: an *agent.Error.
func Error(st *status.Status) error {
	if st.Code() == codes.OK {
		return nil
	}
	info := InfoOf(st)
	e := &agent.Error{
		Reason:  info.GetReason(),
		Code:    agentCode(st.Code()),
		Message: st.Message(),
		Retry:   st.Code() == codes.Unavailable,
		Details: maps.Clone(info.GetMetadata()),
	}
	if e.Reason == "" {
		e.Reason = impliedReason(st.Code())
	}
	for _, d := range st.Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				e.Violations = append(e.Violations, agent.Violation{Field: v.GetField(), Description: v.GetDescription()})
			}
		}
	}
	e.RetryAfter = RetryAfter(st)
	e.Retry = e.Retry || e.RetryAfter > 0
	return e
}

func impliedReason(c codes.Code) string {
	if reason, ok := implied[c]; ok {
		return reason
	}
	return codeName(c)
}

// agentCode is the code as pkg/agent knows it: its list is shorter.
func agentCode(c codes.Code) agent.Code {
	switch c {
	case codes.Canceled:
		return agent.CodeAborted
	case codes.Unknown:
		return agent.CodeInternal
	case codes.OutOfRange:
		return agent.CodeInvalidArgument
	case codes.AlreadyExists:
		return agent.CodeFailedPrecondition
	}
	return agent.Code(c) //nolint:gosec // sixteen values
}

// RetryAfter is how long st asks to wait, 0 if it does not.
func RetryAfter(st *status.Status) time.Duration {
	for _, d := range st.Details() {
		if r, ok := d.(*errdetails.RetryInfo); ok {
			return r.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// restError is the body of a REST error.
type restError struct {
	Error restStatus `json:"error"`
}

type restStatus struct {
	Code    int             `json:"code"`
	Status  string          `json:"status"`
	Message string          `json:"message"`
	Details json.RawMessage `json:"details,omitempty"`
}

// RESTError renders st as the body of a REST answer with an HTTP status.
func RESTError(st *status.Status, httpStatus int) ([]byte, error) {
	return json.Marshal(restError{restStatus{
		Code:    httpStatus,
		Status:  codeName(st.Code()),
		Message: st.Message(),
		Details: encodeDetails(st),
	}})
}

// ParseRESTError reads a REST answer that is no success. What is no error body
// of this shape is judged by its HTTP status alone; what only lacks the name of its
// code, by the HTTP status that it holds.
func ParseRESTError(httpStatus int, body []byte) *status.Status {
	var e restError
	switch err := json.Unmarshal(body, &e); {
	case err == nil && e.Error.Status == "" && e.Error.Message != "":
		if e.Error.Code >= http.StatusBadRequest {
			httpStatus = e.Error.Code
		}
		return status.New(codeOfHTTP(httpStatus), e.Error.Message)
	case err != nil || e.Error.Status == "":
		return status.New(codeOfHTTP(httpStatus), http.StatusText(httpStatus))
	}
	c, ok := code.Code_value[e.Error.Status]
	if !ok || codes.Code(c) == codes.OK { //nolint:gosec // sixteen values
		c = int32(codeOfHTTP(httpStatus)) //nolint:gosec // sixteen values
	}
	return status.FromProto(&spb.Status{Code: c, Message: e.Error.Message, Details: decodeDetails(e.Error.Details)})
}

func codeOfHTTP(httpStatus int) codes.Code {
	switch httpStatus {
	case http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusNotImplemented:
		return codes.Unimplemented
	case http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge:
		return codes.ResourceExhausted
	case http.StatusBadGateway:
		return codes.Unavailable
	}
	for _, c := range general {
		if c.http == httpStatus {
			return c.code
		}
	}
	return codes.Unknown
}

// ParseRPCError is the status that a JSON-RPC error stands for.
func ParseRPCError(e *RPCError) *status.Status {
	details := decodeDetails(e.Data)
	var info *errdetails.ErrorInfo
	for _, d := range details {
		i := &errdetails.ErrorInfo{}
		if d.UnmarshalTo(i) == nil {
			info = i
		}
	}
	if reason, c, ok := protocolReason(e.Code); ok && info == nil {
		return detailed(status.New(c.code, e.Message), infoFor(DomainA2A, reason, nil))
	}
	c := codeOf(e.Code, info)
	return status.FromProto(&spb.Status{Code: int32(c), Message: e.Message, Details: details}) //nolint:gosec // sixteen values
}

// codeName is the name of a code as REST writes it.
func codeName(c codes.Code) string { return code.Code(c).String() } //nolint:gosec // sixteen values

// encodeDetails renders the details of st as an array of typed objects, nil
// without any. A detail of an unknown type is left out.
func encodeDetails(st *status.Status) json.RawMessage {
	var list []json.RawMessage
	for _, d := range st.Proto().GetDetails() {
		if b, err := (protojson.MarshalOptions{Resolver: detailTypes()}).Marshal(d); err == nil {
			list = append(list, b)
		}
	}
	if list == nil {
		return nil
	}
	b, err := json.Marshal(list)
	if err != nil {
		return nil
	}
	return b
}

// maxDetails bounds the details that are read of an error. Ours have at most three.
const maxDetails = 16

// decodeDetails reads what encodeDetails wrote, up to maxDetails; other types are left out.
func decodeDetails(b json.RawMessage) []*anypb.Any {
	list := json.NewDecoder(bytes.NewReader(b))
	if begin, err := list.Token(); err != nil || begin != json.Delim('[') {
		return nil
	}
	o := protojson.UnmarshalOptions{DiscardUnknown: true, RecursionLimit: scanWireDepth, Resolver: detailTypes()}
	var details []*anypb.Any
	for n := 0; n < maxDetails && list.More(); n++ {
		var raw json.RawMessage
		if list.Decode(&raw) != nil {
			return nil
		}
		d := &anypb.Any{}
		if o.Unmarshal(raw, d) == nil {
			details = append(details, d)
		}
	}
	return details
}

// detailTypes are the types of details that are read and written, and no others.
func detailTypes() *protoregistry.Types {
	types := &protoregistry.Types{}
	for _, m := range []proto.Message{&errdetails.ErrorInfo{}, &errdetails.BadRequest{}, &errdetails.RetryInfo{}} {
		_ = types.RegisterMessage(m.ProtoReflect().Type()) // fails for a duplicate only
	}
	return types
}
