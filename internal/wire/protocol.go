package wire

import (
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// TooLarge is the error for a request that is larger than a limit in bytes.
func TooLarge(limit int) error {
	return agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources,
		"the request is larger than %d bytes", limit).With(sizeDetail, strconv.Itoa(limit))
}

// Fits returns nil where an answer can be sent over every binding: as protobuf it has
// no more than MaxEvent bytes. Else it is the error to answer with, which names the
// task of the answer.
func Fits(m proto.Message) error {
	n := proto.Size(m)
	if n <= MaxEvent {
		return nil
	}
	err := agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources,
		"the answer has %d bytes and at most %d are sent; ask for less history with historyLength, for a list without includeArtifacts, "+
			"or for a stream behind a cursor", n, MaxEvent).With(sizeDetail, strconv.Itoa(MaxEvent))
	if of, ok := m.(interface{ GetTask() *a2av1.Task }); ok && of.GetTask() != nil {
		err = err.With("task_id", of.GetTask().GetId())
	}
	return err
}

// NotServed is the status for a path, a verb, a method or a media type that the
// server does not have.
func NotServed(format string, args ...any) *status.Status {
	return detailed(status.Newf(codes.Unimplemented, format, args...), infoFor(DomainTeam, agent.ReasonInvalidRequest, nil))
}

// protocolStatus is the status of an error of the protocol or of a bad request.
func protocolStatus(e *a2a.Error) *status.Status {
	domain := DomainTeam
	if e.Protocol() {
		domain = DomainA2A
	}
	details := []detail{infoFor(domain, e.Reason, e.Details)}
	if len(e.Violations) > 0 {
		bad := &errdetails.BadRequest{}
		for _, v := range e.Violations {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: v.Field, Description: v.Description})
		}
		details = append(details, bad)
	}
	if e.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)})
	}
	return detailed(status.New(codes.Code(e.Code), e.Message), details...) //nolint:gosec // google.rpc.Code
}

// protocolError is what protocolStatus was made of, nil if it was another error.
func protocolError(st *status.Status) *a2a.Error {
	info := InfoOf(st)
	e := &a2a.Error{Reason: info.GetReason(), Code: agentCode(st.Code()), Message: st.Message(), Details: info.GetMetadata(), RetryAfter: RetryAfter(st)}
	for _, d := range st.Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				e.Violations = append(e.Violations, a2a.Violation{Field: v.GetField(), Description: v.GetDescription()})
			}
		}
	}
	if info.GetDomain() != DomainA2A && len(e.Violations) == 0 {
		return nil
	}
	return e
}
