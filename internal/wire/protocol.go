package wire

import (
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// TooLarge is the error for a request that is larger than a limit in bytes.
func TooLarge(limit int) error {
	return agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources,
		"the request is larger than %d bytes", limit).With(sizeDetail, strconv.Itoa(limit))
}

// Fits returns the size of a response, encoded as protobuf. If it cannot be sent over every binding, because
// that is more than MaxEvent bytes, it returns the error to respond with, which names the task.
func Fits(m proto.Message) (int, error) {
	n := proto.Size(m)
	if n <= MaxEvent {
		return n, nil
	}
	err := agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources,
		"the response has %d bytes, more than the maximum of %d; send a smaller historyLength, list without includeArtifacts, "+
			"or resume the stream after a later event", n, MaxEvent).With(sizeDetail, strconv.Itoa(MaxEvent))
	if of, ok := m.(interface{ GetTask() *a2av1.Task }); ok && of.GetTask() != nil {
		err = err.With("task_id", of.GetTask().GetId())
	}
	return n, err
}

// NotServed returns the status for a path, an HTTP method, an RPC method or a media type that
// the server does not support.
func NotServed(format string, args ...any) *status.Status {
	return detailed(status.Newf(codes.Unimplemented, format, args...), infoFor(DomainTeam, agent.ReasonInvalidRequest, nil))
}
