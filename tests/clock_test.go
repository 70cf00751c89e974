package tests

import (
	"context"
	"fmt"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/internal/testkit/storetest"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/tests/rig"
)

// jumps are what a clock may do at once.
var jumps = []time.Duration{time.Hour, -time.Hour, -10 * 365 * 24 * time.Hour, 10 * 365 * 24 * time.Hour}

// onClock is a store that tells the time by a clock.
func onClock(t *testing.T, at rig.Place, clock *storetest.Clock) store.Store {
	t.Helper()
	if !at.Durable {
		return memstore.OpenAt(t, clock.Now)
	}
	s, err := sqlstore.Open(t.Context(), at.URL, sqlstore.Config{Clock: clock.Now, Retention: 100 * 365 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestP16_ClockJumps moves the clock that everybody goes by while a run works and
// another one waits: no run is lost or taken twice, and no task's time goes back.
func TestP16_ClockJumps(t *testing.T) {
	t.Parallel()
	for _, jump := range jumps {
		rig.EachStore(t, func(t *testing.T, at rig.Place) {
			t.Run(fmt.Sprintf("P16 by %s", jump), func(t *testing.T) {
				clock := storetest.NewClock()
				s := onClock(t, at, clock)
				c := newCrew("c")
				m := c.members(t)
				if err := m.Register("asks", script(t, "asks", asking("who?")...)); err != nil {
					t.Fatal(err)
				}
				h := driven(t, s, m, clock)
				works, asks := h.send(t, "c", "works", ""), h.send(t, "asks", "asks", "")
				<-c.entered["c"]
				h.until(t, asks, a2av1.TaskState_TASK_STATE_INPUT_REQUIRED)
				clock.Move(jump)
				before := h.send(t, "a", "again", "")
				h.until(t, before, a2av1.TaskState_TASK_STATE_COMPLETED) // others go on, and are claimed
				if jump < 24*time.Hour && h.send(t, "a", "again", "") != before {
					t.Error("a message id is forgotten")
				}
				if jump < 7*24*time.Hour { // the question's own time
					h.send(t, "asks", "answer", asks)
					h.until(t, asks, a2av1.TaskState_TASK_STATE_COMPLETED)
				}
				clock.Move(-jump)
				c.open("c")
				h.until(t, works, a2av1.TaskState_TASK_STATE_COMPLETED)
				if n := c.called()["c"]; n != 1 {
					t.Errorf("a live run was taken: its member was called %d times", n)
				}
				for _, id := range []string{works, asks, before} {
					h.straight(t, s, id)
				}
			})
		})
	}
}

// handled is a handler with an engine, on a clock.
type handled struct {
	*a2a.Handler
	ctx context.Context
}

func driven(t *testing.T, s store.Store, agents a2a.Agents, clock *storetest.Clock) *handled {
	t.Helper()
	e := engine.New(engine.Config{Leases: s, Replica: "r1"})
	runner := &drive.Runner{Agent: agents.Get, Clock: clock.Now}
	h := a2a.NewHandler(a2a.Config{Agents: agents, Store: s, Wake: e.Wake, Clock: clock.Now})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Serve(ctx, runner.Drive) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &handled{h, identity.WithCaller(t.Context(), identity.Caller{Account: "local", Principal: "local"})}
}

// send sends a message without waiting, and returns its task.
func (h *handled) send(t *testing.T, tenant, id, task string) string {
	t.Helper()
	req := atOnce(rig.Text(tenant, id, "x"))
	req.Message.TaskId = task
	resp, err := h.SendMessage(h.ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetTask().GetId()
}

// until follows a task to a state.
func (h *handled) until(t *testing.T, id string, state a2av1.TaskState) {
	t.Helper()
	ctx, cancel := context.WithTimeout(a2a.WithExtensions(h.ctx, a2a.TeamRunURI), 10*time.Second)
	defer cancel()
	get := func() a2av1.TaskState {
		task, err := h.GetTask(h.ctx, &a2av1.GetTaskRequest{Id: id})
		if err != nil {
			t.Fatal(err)
		}
		return task.GetStatus().GetState()
	}
	updates, err := h.SubscribeToTask(ctx, &a2av1.SubscribeToTaskRequest{Id: id}, 0)
	if err == nil {
		for _, err := range updates {
			if err != nil || get() == state {
				break
			}
		}
	}
	if got := get(); got != state {
		t.Fatalf("the task is %s, want %s", got, state)
	}
}

// straight wants a journal whose sequence and time only go on.
func (h *handled) straight(t *testing.T, s runs.Store, id string) {
	t.Helper()
	records, err := s.Events(h.ctx, runs.Key{Owner: "local/local", ID: id}, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var last time.Time
	for i, rec := range records {
		at := rec.Event.GetTime().AsTime()
		if rec.Seq != int64(i+1) || at.Before(last) {
			t.Errorf("event %d is %d, at %s after %s", i+1, rec.Seq, at, last)
		}
		last = at
	}
}
