package drive

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
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

// grow counts a recorded event that the run keeps.
func (d *drive) grow(ev *teamv1.Event) {
	if d.room != nil && ev.GetDelta() == nil && ev.GetProgress() == nil {
		d.room.Grow(int64(proto.Size(ev)) * inflight.OfRun)
	}
}

// largeEvent is the size from which events are recorded in turn, and recordPatience is how long they wait for that.
const (
	largeEvent     = 256 << 10
	recordPatience = 30 * time.Second
)

// appendInTurn appends events to the journal. Large events wait for memory, at most for recordPatience, and hold it until
// they are committed. They are recorded even if the wait fails, because they are in memory already. The error is the
// journal's.
func (d *drive) appendInTurn(ctx context.Context, events []*teamv1.Event) error {
	size := 0
	if d.room != nil { // nothing is counted without a budget
		for _, ev := range events {
			size += proto.Size(ev)
		}
	}
	if size < largeEvent {
		return d.claim.Journal.Append(ctx, events...)
	}
	turn, _ := d.room.Wait(ctx, inflight.Record, int64(size)*inflight.OfRecord, recordPatience)
	defer turn.Release()
	if err := d.claim.Journal.Append(ctx, events...); err != nil {
		return err
	}
	return d.claim.Journal.Commit(ctx)
}

// callMemory implements agent.Run.CallMemory. Calls of the run that began first are served first, so that it can end and
// release its memory.
func (d *drive) callMemory(ctx context.Context, bytes int64) (agent.Room, error) {
	if d.room == nil || bytes <= inflight.Small {
		return nil, nil //nolint:nilnil // it needs none
	}
	hold, err := d.room.Wait(ctx, inflight.Call, bytes*inflight.OfCall, callPatience)
	if err != nil {
		return nil, err
	}
	return callRoom{hold}, nil
}

// callRoom is the memory of a call.
type callRoom struct{ *inflight.Hold }

// Grow implements agent.Room.
func (r callRoom) Grow(bytes int64) { r.Hold.Grow(bytes * inflight.OfCall) }
