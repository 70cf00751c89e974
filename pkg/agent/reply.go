package agent

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// ReplyEvent returns the event with which Process answers req: the last one of its sequence.
func ReplyEvent(req *teamv1.ProcessRequest, r *teamv1.Reply) *teamv1.Event {
	return &teamv1.Event{Scope: req.GetScope(), Agent: Path(req), Kind: &teamv1.Event_Reply{Reply: r}}
}

// Reply sends one message to an agent and returns its answer. It is for the use of agents as a
// library: it needs no journal and no Run in ctx. An agent that asks a question returns the error
// INPUT_REQUIRED: a caller of Reply cannot answer it.
func Reply(ctx context.Context, a Agent, m *a2av1.Message) (*a2av1.Message, error) {
	info, err := a.Info(ctx)
	if err != nil {
		return nil, err
	}
	return ReplyTo(ctx, a, &teamv1.ProcessRequest{AgentId: info.GetId(), Message: m})
}

// ReplyTo is like Reply, but takes a complete request.
func ReplyTo(ctx context.Context, a Agent, req *teamv1.ProcessRequest) (*a2av1.Message, error) {
	m, _, err := ReplyFor(ctx, a, req)
	return m, err
}

// ReplyFor is like ReplyTo, but also returns what the answer cost. The cost of a failed call is
// in the Spent field of the *Error.
func ReplyFor(ctx context.Context, a Agent, req *teamv1.ProcessRequest) (*a2av1.Message, *teamv1.Spent, error) {
	ctx = With(ctx, From(ctx))
	var reply *teamv1.Reply
	var question *teamv1.Asked
	var seq int64
	for ev, err := range a.Process(ctx, req) {
		if err != nil {
			return nil, nil, err
		}
		if r := ev.GetReply(); r != nil && ev.GetScope() == req.GetScope() {
			reply = r
			continue
		}
		if q := ev.GetAsked(); q != nil {
			question = q
		}
		seq++
		ev.Seq = seq
		ev.Time = timestamppb.New(time.Now())
	}
	switch {
	case reply.GetMessage() != nil:
		return reply.GetMessage(), reply.GetSpent(), nil
	case reply != nil:
		return nil, nil, Errorf(CodeInternal, ReasonNoResponse, "agent %q ended without a message", req.GetAgentId())
	case question != nil:
		return nil, nil, Errorf(CodeFailedPrecondition, ReasonInputRequired, "agent %q asks: %s", req.GetAgentId(), Text(question.GetMessage()))
	case ctx.Err() != nil:
		return nil, nil, context.Cause(ctx)
	}
	return nil, nil, Errorf(CodeInternal, ReasonNoResponse, "agent %q ended without an answer", req.GetAgentId())
}
