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
	"github.com/agentteams/team-server/pkg/secret"
)

// retryAfter is the time to wait before a retry if an error does not say.
const retryAfter = time.Second

// Status converts an error to a gRPC status, from which its other forms are made. It
// contains only what is meant for callers, so not the text of an unknown error.
func Status(err error) *status.Status {
	if err == nil {
		return nil
	}
	// Only the outermost error: a status that it wraps is that of a peer.
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

// protocolError is the error of an A2A handler: *a2aerror.Error of pkg/a2a.
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

// detailed adds details, unless they cannot be encoded because a text is not UTF-8.
func detailed(st *status.Status, details ...detail) *status.Status {
	if with, err := st.WithDetails(details...); err == nil {
		return with
	}
	return st
}

// Error converts a status to an *agent.Error; nil for OK.
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

// agentCode converts a code to one of pkg/agent, which has fewer.
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

// RetryAfter returns the time to wait that a status names; 0 if it names none.
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

// RESTError encodes a status as the body of a REST answer with an HTTP status.
func RESTError(st *status.Status, httpStatus int) ([]byte, error) {
	return json.Marshal(restError{restStatus{
		Code:    httpStatus,
		Status:  codeName(st.Code()),
		Message: st.Message(),
		Details: encodeDetails(st),
	}})
}

// ParseRESTError converts the body of a REST answer that is an error to a status. The code
// is the one that the body names, else the one of the HTTP status in the body, else the one
// of httpStatus. The result is never OK.
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

// ParseRPCError converts a JSON-RPC error to a status.
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

// codeName returns the name of a code in REST.
func codeName(c codes.Code) string { return code.Code(c).String() } //nolint:gosec // sixteen values

// encodeDetails encodes the details of a status as an array of typed objects. Details of unknown types are
// left out. It returns nil if no details remain.
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

// maxDetails is the number of details that are read of an error. Ours have at most three.
const maxDetails = 16

// decodeDetails decodes the result of encodeDetails, without details of unknown types.
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

// detailTypes returns the types of details that are encoded and decoded.
func detailTypes() *protoregistry.Types {
	types := &protoregistry.Types{}
	for _, m := range []proto.Message{&errdetails.ErrorInfo{}, &errdetails.BadRequest{}, &errdetails.RetryInfo{}} {
		_ = types.RegisterMessage(m.ProtoReflect().Type()) // fails for a duplicate only
	}
	return types
}

// WithoutSecret returns the status that another party has answered with, with asterisks in place of a secret
// that the party was given.
func WithoutSecret(st *status.Status, s secret.Secret) *status.Status {
	b, err := proto.Marshal(st.Proto())
	token := []byte(s.Reveal())
	if err != nil || len(token) < secret.MinHidden || !bytes.Contains(b, token) {
		return st
	}
	out := &spb.Status{} // as many asterisks keep the encoding of the details intact
	if proto.Unmarshal(bytes.ReplaceAll(b, token, bytes.Repeat([]byte("*"), len(token))), out) != nil {
		return status.New(st.Code(), "")
	}
	return status.FromProto(out)
}
