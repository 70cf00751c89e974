package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/agent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const me = "acme/ann"

// rig is an engine over the store in memory.
type rig struct {
	testing.TB
	*sqlstore.Store
	*engine.Loop
	logs *observer.ObservedLogs
	stop func() // ends Serve and waits for it
}

// serve starts an engine; the test's end stops it.
func serve(t testing.TB, slots int, drive engine.Drive) *rig {
	core, logs := observer.New(zap.DebugLevel)
	s := memstore.Open(t)
	r := &rig{TB: t, Store: s, logs: logs, Loop: engine.New(engine.Config{Leases: s, Slots: slots, Replica: "r1", Log: zap.New(core)})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, drive); close(done) }()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
	t.Cleanup(r.stop)
	return r
}

// send makes a task and wakes the engine.
func (r *rig) send(id string) {
	r.Helper()
	n := runs.New{Owner: me, MessageID: id, Accepted: &teamv1.Accepted{TaskId: id, Agent: "a", Message: agent.UserMessage(id, "do it")}}
	if _, _, err := r.Create(context.Background(), n); err != nil {
		r.Fatal(err)
	}
	r.Wake()
}

// put leaves an input and wakes the engine.
func (r *rig) put(id string) {
	r.Helper()
	in := &teamv1.Inbound{Key: "f", Kind: &teamv1.Inbound_Received{Received: &teamv1.Received{Message: agent.UserMessage("f", "more")}}}
	if _, _, err := r.Put(context.Background(), runs.Key{Owner: me, ID: id}, in, nil, nil); err != nil {
		r.Fatal(err)
	}
	r.Wake()
}

// task is how a task stands.
func (r *rig) task(id string) *a2av1.Task {
	r.Helper()
	t, _, err := r.Task(context.Background(), runs.Key{Owner: me, ID: id})
	if err != nil {
		r.Fatal(err)
	}
	return t
}

// end ends a run.
func end(ctx context.Context, c runs.Claim) (runs.Park, error) {
	ended := &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED}
	return runs.Park{Done: true}, c.Journal.Append(ctx, &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: ended}})
}

func TestEngine(t *testing.T) {
	for _, s := range []struct {
		name string
		test func(*testing.T)
	}{
		{"A-16 each run is driven once at a time, as many as there are slots", slots},
		{"P11 one account does not hold all slots", sharing},
		{"A-16 a parked run goes on at its time", parked},
		{"A-16 an input that comes as a run parks is not missed", inputs},
		{"A-16 a stop ends the drives and leaves the runs to the next", shutdown},
		{"A-16 a panic is tried again and ends the run in the end", panics},
		{"A-16 an error is tried again, and a good drive makes up for it", errs},
		{"A-16 a run that says done without an end is no success", undone},
		{"A-16 a run that another owner has is left alone", lost},
		{"A-16 claims go on when the store works again", refused},
		{"P19 a run of a later version is left to it", later},
	} {
		t.Run(s.name, func(t *testing.T) { synctest.Test(t, s.test) })
	}
	t.Run("A-16 an engine without leases does not serve", func(t *testing.T) {
		if err := engine.New(engine.Config{}).Serve(t.Context(), end); err == nil {
			t.Fatal("served")
		}
	})
}

// pass lets time go by in the bubble, and all that is due then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func slots(t *testing.T) {
	var now, most, all atomic.Int32
	r := serve(t, 3, func(ctx context.Context, c runs.Claim) (runs.Park, error) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		time.Sleep(time.Second) // in the bubble: returns when all others wait
		now.Add(-1)
		all.Add(1)
		return end(ctx, c)
	})
	start := time.Now()
	for i := range 10 {
		r.send(fmt.Sprint(i))
	}
	pass(10 * time.Second)
	if all.Load() != 10 || most.Load() != 3 {
		t.Fatalf("%d drives, %d at a time, by %v", all.Load(), most.Load(), time.Since(start))
	}
}

func sharing(t *testing.T) {
	var now, all atomic.Int32
	r := serve(t, 10, func(ctx context.Context, c runs.Claim) (runs.Park, error) {
		now.Add(1)
		defer now.Add(-1)
		if c.Owner == me {
			time.Sleep(time.Hour)
		}
		all.Add(1)
		return end(ctx, c)
	})
	for i := range 20 {
		r.send(fmt.Sprint(i))
	}
	pass(time.Second)
	if now.Load() != 9 {
		t.Errorf("%d of 20 slow runs are driven, want 9", now.Load())
	}
	n := runs.New{Owner: "other/bob", MessageID: "x", Accepted: &teamv1.Accepted{TaskId: "x", Agent: "a", Message: agent.UserMessage("x", "do it")}}
	if _, _, err := r.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	r.Wake()
	pass(time.Second)
	if all.Load() != 1 {
		t.Error("the run of another account waits")
	}
	pass(3 * time.Hour)
	if all.Load() != 21 {
		t.Errorf("%d runs have ended, want 21", all.Load())
	}
}

func parked(t *testing.T) {
	start := time.Now()
	var drives []time.Duration
	r := serve(t, 0, func(ctx context.Context, c runs.Claim) (runs.Park, error) {
		drives = append(drives, time.Since(start))
		if len(drives) == 3 {
			return end(ctx, c)
		}
		return runs.Park{Until: time.Now().Add(time.Hour)}, nil
	})
	r.send("one")
	pass(3 * time.Hour)
	if fmt.Sprint(drives) != "[0s 1h0m0s 2h0m0s]" {
		t.Fatalf("driven at %v", drives)
	}
}

func inputs(t *testing.T) {
	drives := 0
	var r *rig
	r = serve(t, 0, func(ctx context.Context, c runs.Claim) (runs.Park, error) {
		if drives++; drives == 1 {
			r.put("one") // after the drive last looked
			return runs.Park{}, nil
		}
		return end(ctx, c)
	})
	r.send("one")
	synctest.Wait()
	if drives != 2 {
		t.Fatalf("%d drives, want 2", drives)
	}
}

func shutdown(t *testing.T) {
	r := serve(t, 0, func(ctx context.Context, _ runs.Claim) (runs.Park, error) {
		<-ctx.Done()
		return runs.Park{}, context.Cause(ctx)
	})
	r.send("one")
	r.send("two")
	synctest.Wait()
	r.stop()
	claims, _, err := r.Claim(context.Background(), "r2", engine.NewRoom(10, nil))
	if err != nil || len(claims) != 2 {
		t.Fatalf("the next gets %v, %v, want both", claims, err)
	}
	if n := r.logs.FilterMessageSnippet("wrong").Len(); n > 0 {
		t.Fatalf("%d errors logged", n)
	}
}

func panics(t *testing.T) {
	start := time.Now()
	var drives []time.Duration
	r := serve(t, 0, func(context.Context, runs.Claim) (runs.Park, error) {
		drives = append(drives, time.Since(start))
		panic("secret")
	})
	r.send("one")
	pass(time.Hour)
	if fmt.Sprint(drives) != "[0s 1s 2s 3s]" {
		t.Fatalf("driven at %v", drives)
	}
	task := r.task("one")
	if task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_FAILED {
		t.Fatalf("task is %v", task)
	}
	events, err := r.Events(context.Background(), runs.Key{Owner: me, ID: "one"}, 1, 10)
	if err != nil || len(events) != 1 {
		t.Fatalf("on record are %v, %v", events, err)
	}
	if e := events[0].Event.GetEnded().GetError(); e.GetReason() != agent.ReasonInternal || e.GetMessage() != "internal error" {
		t.Fatalf("ended with %v, want what shows nothing", e)
	}
	if logged := r.logs.FilterMessage("panic while driving a run").All(); len(logged) != 4 || len(logged[0].ContextMap()["stack"].(string)) == 0 {
		t.Fatalf("logged %v", logged)
	}
}

func errs(t *testing.T) {
	drives := 0
	r := serve(t, 0, func(ctx context.Context, c runs.Claim) (runs.Park, error) {
		drives++
		switch {
		case drives == 20:
			return end(ctx, c)
		case drives%4 == 0:
			return runs.Park{Until: time.Now().Add(time.Second)}, nil
		}
		return runs.Park{}, errors.New("disk")
	})
	r.send("one")
	pass(time.Hour)
	if s := r.task("one").GetStatus().GetState(); drives != 20 || s != a2av1.TaskState_TASK_STATE_COMPLETED {
		t.Fatalf("%d drives, task is %v", drives, s)
	}
}

func undone(t *testing.T) {
	r := serve(t, 0, func(context.Context, runs.Claim) (runs.Park, error) { return runs.Park{Done: true}, nil })
	r.send("one")
	pass(time.Hour)
	if s := r.task("one").GetStatus().GetState(); s != a2av1.TaskState_TASK_STATE_FAILED {
		t.Fatalf("task is %v", s)
	}
}

// later: a run that this version cannot drive is neither ended nor parked, however often it is tried.
func later(t *testing.T) {
	start := time.Now()
	var drives []time.Duration
	r := serve(t, 0, func(ctx context.Context, c runs.Claim) (runs.Park, error) {
		drives = append(drives, time.Since(start))
		if len(drives) == 30 {
			return end(ctx, c) // a replica of the later version
		}
		return runs.Park{}, fmt.Errorf("event 2: %w", runs.ErrNewer)
	})
	r.send("one")
	pass(time.Hour)
	if s := r.task("one").GetStatus().GetState(); s != a2av1.TaskState_TASK_STATE_COMPLETED {
		t.Fatalf("task is %v", s)
	}
	if first, last := drives[1]-drives[0], drives[29]-drives[28]; first != time.Second || last != 30*time.Second {
		t.Errorf("tried again after %v at first and %v at last", first, last)
	}
	if n := r.logs.FilterMessage("run released: it needs a later version of team-server").Len(); n < 1 || n > 5 {
		t.Errorf("logged %d times", n)
	}
}

func lost(t *testing.T) {
	drives := 0
	var r *rig
	r = serve(t, 0, func(ctx context.Context, c runs.Claim) (runs.Park, error) {
		drives++
		if _, err := r.Release(ctx, c, time.Now().Add(time.Hour)); err != nil { // as another process would take it
			t.Error(err)
		}
		return runs.Park{}, c.Journal.Commit(ctx)
	})
	r.send("one")
	pass(30 * time.Minute)
	if drives != 1 {
		t.Fatalf("%d drives, want 1", drives)
	}
}

// broken is a store whose first claims are refused.
type broken struct {
	*sqlstore.Store
	refusals int
}

func (b *broken) Claim(ctx context.Context, replica string, room *engine.Room) ([]runs.Claim, time.Time, error) {
	if b.refusals > 0 {
		b.refusals--
		return nil, time.Time{}, errors.New("no connection")
	}
	return b.Store.Claim(ctx, replica, room)
}

func refused(t *testing.T) {
	s := &broken{Store: memstore.Open(t), refusals: 3}
	r := &rig{TB: t, Store: s.Store, Loop: engine.New(engine.Config{Leases: s})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, end) }()
	r.send("one")
	pass(10 * time.Second)
	if s := r.task("one").GetStatus().GetState(); s != a2av1.TaskState_TASK_STATE_COMPLETED {
		t.Errorf("task is %v", s)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// BenchmarkHandOver is the way from a send to its end.
func BenchmarkHandOver(b *testing.B) {
	ended := make(chan struct{})
	r := serve(b, 0, func(ctx context.Context, c runs.Claim) (runs.Park, error) {
		p, err := end(ctx, c)
		ended <- struct{}{}
		return p, err
	})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.send(fmt.Sprint(i))
		<-ended
	}
}
