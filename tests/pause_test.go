package tests

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// beside is a handler on the store of a server, as another process has one: what it
// is told reaches the run through its inbox.
func (l *life) beside(t testing.TB, agents a2a.Agents) (*a2a.Handler, context.Context) {
	h := a2a.NewHandler(a2a.Config{Agents: agents, Store: l.store})
	return h, identity.WithCaller(t.Context(), identity.Caller{Account: "local", Principal: "local"})
}

func isPaused(task *a2av1.Task) bool { return a2a.RunOf(task.GetMetadata()).GetPaused() }

// parked reports whether a run stands still until it is resumed.
func (l *life) parked(t testing.TB, id string) bool {
	t.Helper()
	records, err := l.store.Events(t.Context(), runs.Key{Owner: rig.LocalOwner, ID: id}, 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	last := records[len(records)-1].Event
	return last.GetScope() == "" && last.GetWaiting().GetPaused()
}

// A paused task stays so when its process dies, and begins nothing until it is resumed.
func TestS_44_PauseOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		c := newCrew("b")
		m := c.members(t)
		four(t, m, "workflow")
		first := live(t, at, m)
		id := first.sendNow(t, "team", "m", "x").GetId()
		<-c.entered["b"]
		h, ctx := first.beside(t, m)
		if task, err := h.Pause(ctx, id); err != nil || !isPaused(task) {
			t.Fatal(task, err)
		}
		c.open("b")
		wake, stop := first.store.Watch(id)
		for !first.parked(t, id) {
			<-wake
		}
		stop()
		first.kill(at)
		c.called()

		second := live(t, at, m)
		if task := second.get(t, id); !isPaused(task) || task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_WORKING {
			t.Errorf("after the crash the task is %v", task)
		}
		for _, client := range second.clients {
			list, err := client.List(t.Context(), &a2av1.ListTasksRequest{})
			if err != nil || !slices.ContainsFunc(list.GetTasks(), func(t *a2av1.Task) bool { return t.GetId() == id && isPaused(t) }) {
				t.Errorf("%s lists %v, %v", client.Binding(), list, err)
			}
		}
		if calls := c.called(); len(calls) > 0 {
			t.Errorf("called while it is paused: %v", calls)
		}
		second.kill(at)

		goesOn(t, at, m, id)
		if calls := c.called(); calls["c"] != 1 || calls["d"] != 1 || calls["a"] > 0 {
			t.Errorf("called when it was resumed: %v", calls)
		}
	})
}

// goesOn resumes a task in a process that has only just begun.
func goesOn(t *testing.T, at rig.Place, agents a2a.Agents, id string) {
	t.Helper()
	inner, done := at.Open(t)
	defer done()
	local, err := server.NewLocal(server.Config{Agents: agents, Store: inner})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- local.Serve(ctx) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	h, call := local.Handler(), identity.WithCaller(ctx, identity.Caller{Account: "local", Principal: "local"})
	if _, err := h.Resume(call, id); err != nil {
		t.Fatal(err)
	}
	updates, err := h.SubscribeToTask(call, &a2av1.SubscribeToTaskRequest{Id: id}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range updates {
		if err != nil {
			t.Fatal(err)
		}
	}
	task, err := h.GetTask(call, &a2av1.GetTaskRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	if got := agent.Text(&a2av1.Message{Parts: task.GetArtifacts()[0].GetParts()}); got != "d(c(b(a(x))))" {
		t.Errorf("the answer is %q", got)
	}
}

// R-001-42: artifacts that a stop drops, no binding shows any more; those it keeps, all do.
func TestS_43_StopDropsArtifacts(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		for _, save := range []bool{false, true} {
			c := newCrew("b")
			m := c.members(t)
			four(t, m, "workflow")
			l := live(t, at, m)
			id := l.sendNow(t, "team", fmt.Sprint("m", save), "x").GetId()
			<-c.entered["b"]
			h, ctx := l.beside(t, m)
			task, err := h.Stop(ctx, id, a2a.Stop{Force: true, SavePartial: save})
			if err != nil || task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED {
				t.Fatal(task, err)
			}
			for _, client := range l.clients {
				for _, id := range []string{id, id + "~1"} {
					task, err := client.Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
					if err != nil {
						t.Fatal(err)
					}
					b, err := protojson.Marshal(task)
					if err != nil {
						t.Fatal(err)
					}
					if bytes.Contains(b, []byte("a(x)")) != save {
						t.Errorf("save_partial=%v: %s shows %s", save, client.Binding(), b)
					}
				}
			}
			l.kill(at)
		}
	})
}
