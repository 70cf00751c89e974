package a2a_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// crashing is a store whose Create panics, and that counts the watches that are not stopped.
type crashing struct {
	runs.Store
	watches *atomic.Int64
}

func (crashing) Create(context.Context, runs.New) (string, bool, error) { panic("create") }

func (s crashing) Watch(id string) (<-chan struct{}, func()) {
	wake, stop := s.Store.Watch(id)
	s.watches.Add(1)
	return wake, func() {
		s.watches.Add(-1)
		stop()
	}
}

// A caller may recover a panic of the store, as net/http does.
func TestSend_APanicOfTheStoreLeavesNoWatch(t *testing.T) {
	r := start(t, echo("echo"))
	s := crashing{memstore.Open(t), new(atomic.Int64)}
	h := a2a.NewHandler(a2a.Config{Agents: r.agents, Store: s, Wake: func() {}})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the store did not panic")
			}
		}()
		_, _ = h.SendMessage(ann(t), message("echo", "hello"))
	}()
	if n := s.watches.Load(); n != 0 {
		t.Errorf("%d watches are left", n)
	}
}

// A store whose channel for a task that does not exist yet never receives delays the answer by about a second, not by the
// minute of Config.Poll.
func TestA_09_AStoreThatSendsNoWakeUp(t *testing.T) {
	r := start(t, echo("echo"))
	ctx, cancel := context.WithTimeout(ann(t), 30*time.Second)
	defer cancel()
	resp, err := r.through(&lens{deaf: true}, a2a.Config{}).SendMessage(ctx, message("echo", "hello"))
	if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
		t.Errorf("%v, %v", resp, err)
	}
}

// A Go program learns which field of its start is missing.
func TestR_001_12_AStartNeedsABrief(t *testing.T) {
	r := start(t, echo("team"))
	_, err := r.Start(ann(t), a2a.Start{Agent: "team", Message: agent.UserMessage("start", "Write about the sea.")})
	wantFields(t, err, "brief")
}
