package engine_test

import (
	"context"
	"errors"
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

// shared is a store like one that replicas share, and that can be out of reach.
type shared struct {
	*sqlstore.Store
	out   atomic.Bool // nothing is taken
	beats atomic.Int64
}

var errOut = errors.New("out of reach")

func (s *shared) Lease() time.Duration { return 15 * time.Second }

func (s *shared) Beat(context.Context, string) error {
	if s.out.Load() {
		return errOut
	}
	s.beats.Add(1)
	return nil
}

func (s *shared) Claim(ctx context.Context, replica string, room *engine.Room) ([]runs.Claim, time.Time, error) {
	if s.out.Load() {
		return nil, time.Time{}, errOut
	}
	return s.Store.Claim(ctx, replica, room)
}

func (s *shared) Park(ctx context.Context, c runs.Claim, p runs.Park) (engine.Next, error) {
	if s.out.Load() {
		return engine.Next{}, errors.Join(runs.ErrStorage, errOut)
	}
	return s.Store.Park(ctx, c, p)
}

func (s *shared) Release(ctx context.Context, c runs.Claim, at time.Time) (engine.Next, error) {
	if s.out.Load() {
		return engine.Next{}, errOut
	}
	return s.Store.Release(ctx, c, at)
}

// serveShared starts an engine over such a store.
func serveShared(t *testing.T, drive engine.Drive) (*rig, *shared) {
	s := &shared{Store: memstore.Open(t)}
	r := &rig{TB: t, Store: s.Store, Loop: engine.New(engine.Config{Leases: s, Replica: "r1"})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, drive); close(done) }()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(r.stop)
	return r, s
}

func TestOutage(t *testing.T) {
	for _, s := range []struct {
		name string
		test func(*testing.T)
	}{
		{"A-16 a replica says that it lives three times a lease", beats},
		{"A-16 a replica that is not heard of gives up its runs before others may take them", unheard},
		{"S-49 a run that the store stops goes on when the store is back, however long that takes", outage},
		{"S-49 a stop does not wait for a store that is out of reach", stopped},
	} {
		t.Run(s.name, func(t *testing.T) { synctest.Test(t, s.test) })
	}
}

func beats(t *testing.T) {
	_, s := serveShared(t, end)
	pass(61 * time.Second)
	if n := s.beats.Load(); n != 12 {
		t.Fatalf("%d beats in a minute, want 12", n)
	}
}

func unheard(t *testing.T) {
	start := time.Now()
	var lost time.Duration
	drives := 0
	r, s := serveShared(t, func(ctx context.Context, c runs.Claim) (runs.Park, error) {
		if drives++; drives > 1 {
			return end(ctx, c)
		}
		<-ctx.Done()
		lost = time.Since(start)
		return runs.Park{}, context.Cause(ctx)
	})
	r.send("one")
	pass(6 * time.Second) // one beat came through, at 5 s
	s.out.Store(true)
	pass(30 * time.Second)
	if lost != 15*time.Second || drives != 1 {
		t.Fatalf("given up at %v after %d drives, want at 15s, two beats after the last that came through", lost, drives)
	}
	s.out.Store(false)
	pass(10 * time.Second)
	if got := r.task("one").GetStatus().GetState(); got != a2av1.TaskState_TASK_STATE_COMPLETED || drives != 2 {
		t.Fatalf("%v after %d drives", got, drives)
	}
}

func outage(t *testing.T) {
	drives := 0
	var r *rig
	var s *shared
	r, s = serveShared(t, func(ctx context.Context, c runs.Claim) (runs.Park, error) {
		if drives++; s.out.Load() || drives == 1 {
			s.out.Store(true)
			return runs.Park{}, errors.Join(runs.ErrStorage, errOut)
		}
		return end(ctx, c)
	})
	r.send("one")
	pass(time.Hour)
	s.out.Store(false)
	pass(10 * time.Second)
	if got := r.task("one").GetStatus().GetState(); got != a2av1.TaskState_TASK_STATE_COMPLETED {
		t.Fatalf("%v after %d drives", got, drives)
	}
}

func stopped(t *testing.T) {
	r, s := serveShared(t, func(ctx context.Context, _ runs.Claim) (runs.Park, error) {
		<-ctx.Done()
		return runs.Park{}, context.Cause(ctx)
	})
	r.send("one")
	synctest.Wait()
	s.out.Store(true)
	pass(30 * time.Second)
	before := time.Now()
	r.stop()
	if took := time.Since(before); took > 15*time.Second {
		t.Fatalf("stopped after %v", took)
	}
}
