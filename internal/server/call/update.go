package call

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/server/reduce"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// SeqOf returns the sequence number after which a reader can resume behind a message of a stream, 0 if it has none.
func SeqOf(message any) int64 {
	switch m := message.(type) {
	case feed.Update:
		return m.Seq
	case *teamv1.ProcessStreamResponse:
		return m.GetEvent().GetSeq()
	case *teamv1.WatchTaskResponse:
		return m.GetSeq()
	}
	return 0
}

// Reduced returns a message of WatchTask in the form that clients can read.
func Reduced(ctx context.Context, m *teamv1.WatchTaskResponse) proto.Message {
	if m.GetSnapshot() == nil {
		return m
	}
	return reduce.Reduce(m, InboundOf(ctx).BaseURL())
}

// errReduced says that an update has parts to replace by URLs, which differ between its readers.
var errReduced = errors.New("an update has parts that are replaced")

// EncodeUpdate encodes an update in a form, and waits for the memory to send it. Its readers share the result, unless
// Reduce replaces parts by URLs of the server: their readers may see it at different ones. An update that is still too
// large for any binding is an error.
func EncodeUpdate(ctx context.Context, u feed.Update, form feed.Form, encode func(proto.Message) ([]byte, error)) ([]byte, error) {
	in := InboundOf(ctx)
	data, err := u.Encoded(form, func(m proto.Message) ([]byte, error) {
		if reduce.Reduce(m, "") != m {
			return nil, errReduced
		}
		if _, err := wire.Fits(m); err != nil {
			return nil, err
		}
		return encode(m)
	})
	switch {
	case errors.Is(err, errReduced):
		return encodeReduced(ctx, in, u, encode)
	case err != nil:
		return nil, err
	}
	return data, in.Held.sharing(ctx, u, len(data))
}

// encodeReduced encodes an update of which Reduce replaces parts.
func encodeReduced(ctx context.Context, in *Inbound, u feed.Update, encode func(proto.Message) ([]byte, error)) ([]byte, error) {
	if err := in.Held.Updating(ctx, proto.Size(u.Response)); err != nil {
		return nil, err
	}
	m := reduce.Reduce(u.Response, in.BaseURL())
	if _, err := wire.Fits(m); err != nil {
		return nil, err
	}
	return encode(m)
}

// SlowReader returns the error for a reader that accepted no data for StallTime.
func SlowReader() *agent.Error {
	return &agent.Error{
		Code: agent.CodeUnavailable, Reason: agent.ReasonSlowReader, Retry: true,
		Message: "the client did not read the stream for too long; resume after the last event received",
	}
}
