package drive

import (
	"context"
	"time"

	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// roomPatience is how long a run waits in its slot for the memory of its recorded events. After that, it gives the
	// slot up for roomRetry.
	roomPatience = 2 * time.Second
	roomRetry    = 2 * time.Second
	// callPatience is how long a call of a model, a tool or an agent waits for memory before its step fails.
	callPatience = 2 * time.Minute
)

// room reserves memory for the recorded events of a claimed run. If the account has no free memory, it returns a Park
// instead, with the time of the next try.
func (r *Runner) room(ctx context.Context, c runs.Claim) (*inflight.Hold, *runs.Park, error) {
	room, err := r.Memory.Wait(ctx, inflight.Run, identity.AccountOf(c.Owner), c.Bytes*inflight.OfRun, roomPatience)
	switch {
	case err == nil:
		return room, nil, nil
	case ctx.Err() != nil:
		return nil, nil, context.Cause(ctx)
	}
	now := time.Now
	if r.Clock != nil {
		now = r.Clock
	}
	return nil, &runs.Park{Until: now().Add(roomRetry)}, nil
}

// callMemory implements agent.Run.CallMemory. Calls of the run that began first are served first, so that it can end and
// release its memory.
func (r *record) callMemory(ctx context.Context, bytes int64) (agent.Room, error) {
	if r.room == nil || bytes <= inflight.Small {
		return nil, nil //nolint:nilnil // it needs none
	}
	hold, err := r.room.Wait(ctx, inflight.Call, bytes*inflight.OfCall, callPatience)
	if err != nil {
		return nil, err
	}
	return callRoom{hold}, nil
}

// callRoom is the memory of a call.
type callRoom struct{ *inflight.Hold }

// Grow implements agent.Room.
func (r callRoom) Grow(bytes int64) { r.Hold.Grow(bytes * inflight.OfCall) }
