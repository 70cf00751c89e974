package drive_test

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/tests/rig"
)

// deaf is an agent that does not look at its context.
type deaf struct {
	*agent.Func
	calls *int
}

func (d deaf) Process(_ context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		*d.calls++
		yield(agent.ReplyEvent(req, &teamv1.Reply{Result: &teamv1.Reply_Message{Message: agent.NewMessage("done")}}), nil)
	}
}

// S-24, S-43: a task that was canceled or stopped before anybody drove it calls nobody,
// also no agent that does not look at its context.
func TestS_24_S_43_EndBeforeTheStart(t *testing.T) {
	calls := 0
	f := deaf{Func: &agent.Func{ID: "leaf"}, calls: &calls}
	all := newAgents(t, f)
	all.newTeam(t, "team", "leaf")
	for i := range 6 {
		s := newSingle(t, []string{"leaf", "team"}[i%2])
		if i < 2 {
			s.cancel(t)
		} else {
			s.command(t, "stop", &teamv1.Commanded{Command: stopIt, Force: i < 4})
		}
		if park, err := all.runner().Drive(t.Context(), s.take(t)); err != nil || !park.Done {
			t.Fatal(park, err)
		}
		wantState(t, s.task(t), canceled)
	}
	if calls > 0 {
		t.Errorf("%d calls", calls)
	}
}

// announced is an agent whose tasks of peers are told of once somebody allows it.
type announced struct {
	agent.Agent
	agent.Reaper
	allow func()
}

func (a announced) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		for ev, err := range a.Agent.Process(ctx, req) {
			if ev.GetBound() != nil {
				a.allow()
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// S-24: the process died before the peers' tasks were on record. By the Agent
// service they end by the key on record; over A2A it is told that there may be one.
func TestS_24_CrashBeforeTheTaskOfAPeerIsKnown(t *testing.T) {
	for id, want := range map[string][]string{
		"team": {"1 team/far: sent its message; the task is not known, unconfirmed", "2 team/near: sent its message; the task is not known, confirmed"},
		"far":  {" far: sent its message; the task is not known, unconfirmed"},
		"near": {" near: sent its message; the task is not known, confirmed"},
	} {
		far, overFar := rig.OverA2A(t, "far", rig.Held(), time.Minute)
		near, overNear := rig.OverService(t, "near", rig.Held(), time.Minute)
		called := func() {
			if id != "near" {
				far.Await(t, "SendStreamingMessage", 1)
			}
			if id != "far" {
				near.Await(t, "ProcessStream", 1)
			}
		}
		all := newAgents(t, announced{overFar, overFar.(agent.Reaper), called}, announced{overNear, overNear.(agent.Reaper), called})
		all.newPair(t, team.Config{ID: "team"}, "far", "near")
		s := newSingle(t, id)
		c := s.take(t)
		c.Journal = &dying{Journal: c.Journal, at: func(ev *teamv1.Event) bool { return ev.GetBound() != nil }}
		if _, err := all.runner().Drive(t.Context(), c); err == nil {
			t.Fatal("it did not die")
		}
		s.die(t)
		s.cancel(t)
		sent := func() int { return len(far.Requests("SendStreamingMessage")) + len(near.Requests("ProcessStream")) }
		before := sent()
		if park, err := all.runner().Drive(t.Context(), s.take(t)); err != nil || !park.Done {
			t.Fatal(park, err)
		}
		rig.WantReached(t, wantState(t, s.task(t), canceled), want...)
		if sent() != before {
			t.Errorf("%s: %d messages after the crash", id, sent()-before)
		}
	}
}

// S-24: the agent of the run is gone when the cancel comes: the peer's task is
// told as not confirmed.
func TestS_24_CancelWithoutTheAgent(t *testing.T) {
	_, overFar := rig.OverA2A(t, "far", fakeagent.Config{Default: fakeagent.Turn{Ask: "which?"}}, time.Minute)
	all := newAgents(t, overFar)
	all.newTeam(t, "team", "far")
	s := newSingle(t, "team")
	if park, err := all.runner().Drive(t.Context(), s.take(t)); err != nil || park.Done {
		t.Fatal(park, err)
	}
	s.die(t)
	s.cancel(t)
	gone := func(id string) (agent.Agent, error) {
		return nil, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no agent %q", id)
	}
	if park, err := (&drive.Runner{Agent: gone}).Drive(t.Context(), s.take(t)); err != nil || !park.Done {
		t.Fatal(park, err)
	}
	rig.WantReached(t, wantState(t, s.task(t), canceled), "1 team/far: waiting for an answer, unconfirmed")
}

// S-24: the process dies at every event from the cancel on, up to the end; the next
// one begins with what is on record, sends nothing, and ends the peers' tasks.
func TestS_24_CrashAfterTheCancel(t *testing.T) {
	crashes := int64(0)
	for ended := false; !ended; crashes++ {
		ended = crashAfterCancel(t, crashes)
	}
	if crashes < 4 { // the cancel, three steps, the end
		t.Errorf("%d crashes", crashes)
	}
}

// crashAfterCancel lets a run die so many events after its cancel, and reports
// whether it ended before.
func crashAfterCancel(t *testing.T, events int64) (ended bool) {
	t.Helper()
	far, overFar := rig.OverA2A(t, "far", rig.Held(), time.Minute)
	near, overNear := rig.OverService(t, "near", rig.Held(), time.Minute)
	all := newAgents(t, overFar, overNear)
	all.newPair(t, team.Config{ID: "inner"}, "far", "near")
	all.newTeam(t, "team", "inner")
	s := newSingle(t, "team")
	runner := &drive.Runner{Agent: all.Get, Replica: "one"}
	c := s.take(t)
	var seen atomic.Int64 // events from the cancel on
	j := &dying{Journal: c.Journal, at: func(ev *teamv1.Event) bool {
		return (ev.GetCommanded() != nil || seen.Load() > 0) && seen.Add(1) > events
	}}
	done := make(chan error, 1)
	go func() {
		_, err := runner.Drive(t.Context(), runs.Claim{Root: c.Root, Epoch: c.Epoch, Journal: j})
		done <- err
	}()
	s.until(t, 2, func(ev *teamv1.Event) bool { return ev.GetBound() != nil })
	s.cancel(t)
	if err := <-done; err == nil {
		return true
	}
	s.die(t)
	sent := func() int { return len(far.Requests("SendStreamingMessage")) + len(near.Requests("ProcessStream")) }
	before := sent()
	if park, err := (&drive.Runner{Agent: all.Get, Replica: "two"}).Drive(t.Context(), s.take(t)); err != nil || !park.Done {
		t.Fatal(events, park, err)
	}
	rig.WantReached(t, wantState(t, s.task(t), canceled),
		"1 team/inner: gave work to far, near",
		"1.1 team/inner/far: remote task TASK_STATE_WORKING, confirmed",
		"1.2 team/inner/near: remote task TASK_STATE_WORKING, confirmed",
	)
	if sent() != before {
		t.Errorf("%d messages after the crash", sent()-before)
	}
	if len(far.Requests("CancelTask")) == 0 || len(near.Requests("Cancel")) == 0 {
		t.Error("a peer got no cancel")
	}
	return false
}
