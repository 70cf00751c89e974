package a2a_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	serving "github.com/agentteams/team-server/tests/rig"
)

// C-28: a step is canceled by its own id; what it has below ends with it, and
// the run goes on as on_member_error says.
func TestC_28_CancelOfOneDelegation(t *testing.T) {
	begin := func(t *testing.T, report bool) (r *rig, far *fakeagent.Agent, g *gate, root string) {
		t.Helper()
		far, overFar := serving.OverA2A(t, "far", serving.Held(), time.Minute)
		g = newGate("gate")
		r = start(t, overFar, g, echo("other"))
		r.newTeam(t, "inner", together("far", "gate"), "far", "gate")
		r.newTeamOf(t, team.Config{ID: "team", Scheduler: together("inner", "other"), ReportErrors: report}, "inner", "other")
		root = r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
		<-g.entered
		r.bound(t, root, "1.1")
		return r, far, g, root
	}
	t.Run("a nested team", func(t *testing.T) {
		r, far, _, root := begin(t, true)
		child := wantState(t, r.cancel(t, root+"~1"), canceled)
		serving.WantReached(t, child, "1.1 team/inner/far: remote task TASK_STATE_WORKING, confirmed", "1.2 team/inner/gate: began to work")
		r.until(t, root, completed)
		wantState(t, r.get(t, root+"~2"), completed)
		if len(far.Requests("CancelTask")) == 0 {
			t.Error("the peer got no cancel")
		}
		equal(t, child, r.cancel(t, root+"~1"))
	})
	t.Run("a remote member of a nested team", func(t *testing.T) {
		r, far, g, root := begin(t, true)
		child := wantState(t, r.cancel(t, root+"~1.1"), canceled)
		serving.WantReached(t, child, "1.1 team/inner/far: remote task TASK_STATE_WORKING, confirmed")
		if len(far.Requests("CancelTask")) == 0 {
			t.Error("the peer got no cancel")
		}
		wantState(t, r.get(t, root), working)
		g.open()
		r.until(t, root, completed) // inner fails, since its member did, and team goes on
		wantState(t, r.get(t, root+"~1"), failed)
		wantState(t, r.get(t, root+"~1.2"), completed)
	})
	t.Run("the run fails where nothing else is said", func(t *testing.T) {
		r, _, _, root := begin(t, false)
		wantState(t, r.cancel(t, root+"~1"), canceled)
		r.until(t, root, failed)
	})
	t.Run("a question of a peer, while a sibling works", func(t *testing.T) {
		far, overFar := serving.OverA2A(t, "far", fakeagent.Config{Default: fakeagent.Turn{Ask: "which?"}}, time.Minute)
		g := newGate("gate")
		r := start(t, overFar, g)
		r.newTeamOf(t, team.Config{ID: "team", Scheduler: together("far", "gate"), ReportErrors: true}, "far", "gate")
		root := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
		<-g.entered
		r.until(t, root+"~1", inputRequired)
		serving.WantReached(t, wantState(t, r.cancel(t, root+"~1"), canceled), "1 team/far: remote task TASK_STATE_INPUT_REQUIRED, confirmed")
		if len(far.Requests("CancelTask")) == 0 {
			t.Error("the peer got no cancel")
		}
		g.open()
		r.until(t, root, completed)
	})
}

// cancel and finish at the same moment: one of them wins, once.
func TestA_16_CancelOrFinish(t *testing.T) {
	g := &agent.Func{ID: "quick", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) { return agent.NewMessage("done"), nil }}
	r := start(t, g)
	r.newTeam(t, "inner", through("quick"), "quick")
	r.newTeam(t, "team", together("inner", "quick"), "inner", "quick")
	var wg sync.WaitGroup
	var canceledRuns atomic.Int64
	for i := range 1000 {
		root := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
		wg.Go(func() {
			for range i % 40 { // a little later each time
				r.record(t, root)
			}
			task, err := r.CancelTask(ann(t), &a2av1.CancelTaskRequest{Id: root})
			if r.oneEnd(t, root, task, err) == canceled {
				canceledRuns.Add(1)
			}
		})
		if i%8 == 7 {
			wg.Wait()
		}
	}
	wg.Wait()
	t.Logf("%d of 1000 runs were canceled", canceledRuns.Load())
}

// oneEnd checks that a run has one end, that all who tell of it agree, and that
// nothing came after it; and returns its state.
func (r *rig) oneEnd(t testing.TB, root string, told *a2av1.Task, err error) a2av1.TaskState {
	t.Helper()
	events := r.record(t, root)
	ends, commanded := 0, false
	f := project.New(root, "")
	for _, ev := range events {
		f.Apply(ev)
		if ev.GetScope() == "" && ev.GetEnded() != nil {
			ends++
		}
		commanded = commanded || ev.GetCommanded() != nil
	}
	now := r.get(t, root)
	state := now.GetStatus().GetState()
	if ends != 1 || events[len(events)-1].GetEnded() == nil || events[len(events)-1].GetScope() != "" {
		t.Errorf("%d ends, the last event is %v", ends, events[len(events)-1])
	}
	if f.State() != state || commanded != (state == canceled) {
		t.Errorf("the record says %s, GetTask %s; a cancel is on record: %v", f.State(), state, commanded)
	}
	switch {
	case err == nil && (told.GetStatus().GetState() != canceled || state != canceled):
		t.Errorf("the cancel was told %s, the task is %s", told.GetStatus().GetState(), state)
	case err != nil && (reasonOf(err) != a2aerror.ReasonTaskNotCancelable || state != completed):
		t.Errorf("the cancel was told %v, the task is %s", err, state)
	}
	return state
}
