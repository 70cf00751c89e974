package remote

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// A peer gets slightly less time than the call has, so that its timeout error arrives before the
// call itself ends. It is not called if there is too little time.
const (
	slack     = 20                    // the fraction 1/20 of the remaining time is held back
	leastTime = 50 * time.Millisecond // the minimum time for a call
)

// deadlineOf returns the deadline for the peer: the earlier one of the request and its context,
// less the slack. Nil means no deadline.
func deadlineOf(ctx context.Context, req *teamv1.ProcessRequest, now time.Time) *timestamppb.Timestamp {
	t, limited := ctx.Deadline()
	if d := req.GetDeadline(); d != nil && (!limited || d.AsTime().Before(t)) {
		t, limited = d.AsTime(), true
	}
	if !limited {
		return nil
	}
	return timestamppb.New(t.Add(-max(t.Sub(now), 0) / slack))
}

// inTime returns the error TIMEOUT_EXCEEDED if there is too little time to begin a call, nil
// otherwise.
func (c *call) inTime() error {
	d := deadlineOf(c.ctx, c.req, c.run.Now())
	if d == nil || d.AsTime().Sub(c.run.Now()) >= leastTime {
		return nil
	}
	return agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "too little time is left to call a remote agent")
}
