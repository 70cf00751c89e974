package remote

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// A peer is given a little less time than there is, so that its answer, that time
// ran out there, is back before it runs out here; and none that cannot do.
const (
	slack     = 20 // a 20th of the time
	leastTime = 50 * time.Millisecond
)

// deadlineOf is when a peer has to be done: the earlier of what the call says and
// what its context leaves; nil is no limit.
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

// inTime is TIMEOUT_EXCEEDED where there is no time to begin anything.
func (c *call) inTime() error {
	d := deadlineOf(c.ctx, c.req, c.run.Now())
	if d == nil || d.AsTime().Sub(c.run.Now()) >= leastTime {
		return nil
	}
	return agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "there is too little time left to ask a remote agent")
}
