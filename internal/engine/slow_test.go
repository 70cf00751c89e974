package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/memstore"
)

// slow is a store that answers late: what it is asked for ends with its context.
type slow struct {
	*sqlstore.Store
	claims, parks atomic.Int64 // that are not answered
	claimed       atomic.Int64
}

func (s *slow) Claim(ctx context.Context, replica string, room *engine.Room) ([]runs.Claim, time.Time, error) {
	if s.claims.Add(-1) >= 0 {
		<-ctx.Done()
		return nil, time.Time{}, ctx.Err()
	}
	s.claimed.Add(1)
	return s.Store.Claim(ctx, replica, room)
}

func (s *slow) Park(ctx context.Context, c runs.Claim, p runs.Park) (engine.Next, error) {
	if s.parks.Add(-1) >= 0 {
		<-ctx.Done()
		return engine.Next{}, ctx.Err()
	}
	return s.Store.Park(ctx, c, p)
}

// serveSlow starts an engine over such a store.
func serveSlow(t *testing.T, s *slow, drive engine.Drive) *rig {
	r := &rig{TB: t, Store: s.Store, Loop: engine.New(engine.Config{Leases: s, Replica: "r1"})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, drive); close(done) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestA_16_AClaimThatIsNotAnsweredIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Store: memstore.Open(t)}
		s.claims.Store(1)
		var drives atomic.Int64
		r := serveSlow(t, s, func(context.Context, runs.Claim) (runs.Park, error) {
			drives.Add(1)
			return runs.Park{}, nil
		})
		r.send("one")
		time.Sleep(time.Minute)
		if drives.Load() == 0 {
			t.Error("a claim that hangs keeps everything from being driven")
		}
	})
}

// A run is not to blame for a store that is slow.
func TestA_16_ParksThatAreNotAnsweredEndNoRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Store: memstore.Open(t)}
		s.parks.Store(6)
		r := serveSlow(t, s, func(context.Context, runs.Claim) (runs.Park, error) { return runs.Park{}, nil })
		r.send("one")
		time.Sleep(5 * time.Minute)
		if left := s.parks.Load(); left >= 0 {
			t.Errorf("%d parks are left", left)
		}
		if state := r.task("one").GetStatus().GetState(); state == a2av1.TaskState_TASK_STATE_FAILED {
			t.Error("the run was ended")
		}
	})
}
