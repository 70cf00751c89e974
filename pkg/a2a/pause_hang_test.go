package a2a_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

// stuck is a middleware that lets the first message pass and does not come back from
// the next one until it is let go.
type stuck struct {
	looks  atomic.Int32
	letGo  func()
	opened chan struct{}
}

func newStuck() *stuck {
	s := &stuck{opened: make(chan struct{})}
	s.letGo = sync.OnceFunc(func() { close(s.opened) })
	return s
}

func (*stuck) Name() string { return "stuck" }

func (s *stuck) Check(ctx context.Context, _ *agent.Passing) (agent.Verdict, error) {
	if s.looks.Add(1) == 1 {
		return agent.Verdict{}, nil
	}
	select {
	case <-s.opened:
	case <-ctx.Done():
	}
	return agent.Verdict{}, nil
}

// C-15, S-44: what hangs while a step is about to begin holds a pause up for seconds at
// the most, and a cancel behind it not at all. The step does not begin before Resume.
func TestC_15_PauseIsBounded(t *testing.T) {
	type rigged struct {
		*rig
		id    string
		guard *stuck
		other *gate
		calls *atomic.Int32
	}
	// A member is about to begin its second attempt while a middleware hangs.
	hanging := func(t *testing.T, nested bool) rigged {
		s := rigged{guard: newStuck(), other: newGate("other"), calls: &atomic.Int32{}}
		flaky := &agent.Func{ID: "flaky", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
			if s.calls.Add(1) == 1 {
				return nil, &agent.Error{Reason: agent.ReasonUnavailable, Retry: true, Fresh: true, RetryAfter: 10 * time.Second, Message: "busy"}
			}
			return agent.NewMessage("done"), nil
		}}
		s.rig = start(t, flaky, s.other)
		members := []string{"flaky", "other"}
		if nested {
			s.newTeam(t, "inner", through("flaky"), "flaky")
			members[0] = "inner"
		}
		s.newTeamOf(t, team.Config{
			ID: "team", Scheduler: together(members...), Guards: agent.Guards{Input: []agent.Guard{{Middleware: s.guard}}},
		}, members...)
		s.id = s.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
		synctest.Wait()
		s.send(t, ann(t), atOnce(reply(s.id, "and more")))
		time.Sleep(15 * time.Second)
		if n := s.guard.looks.Load(); n != 2 {
			t.Fatalf("the middleware was asked %d times", n)
		}
		return s
	}
	in := func(name string, story func(t *testing.T, s rigged)) {
		for _, nested := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, nested %v", name, nested), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { story(t, hanging(t, nested)) })
			})
		}
	}
	in("it is on record within seconds, and nothing begins before it is resumed", func(t *testing.T, s rigged) {
		before := time.Now()
		s.pause(t, s.id)
		if took := time.Since(before); took > 3*time.Second {
			t.Errorf("it took %s to pause", took)
		}
		if n := s.record(t, s.id); n[len(n)-1].GetCommanded().GetCommand() != teamv1.Commanded_COMMAND_PAUSE {
			t.Errorf("the pause is not on record: %v", n[len(n)-1])
		}
		s.guard.letGo()
		s.other.open()
		s.parked(t, s.id)
		if n := s.calls.Load(); n != 1 {
			t.Errorf("%d calls while it was paused", n)
		}
		s.resume(t, s.id)
		s.until(t, s.id, completed)
		if n := s.calls.Load(); n != 2 {
			t.Errorf("%d calls in all, want 2", n)
		}
	})
	in("a cancel behind it acts at once", func(t *testing.T, s rigged) {
		paused := make(chan error, 1)
		go func() {
			_, err := s.Pause(ann(t), s.id)
			paused <- err
		}()
		synctest.Wait()
		before := time.Now()
		wantState(t, s.cancel(t, s.id), canceled)
		if took := time.Since(before); took > 0 {
			t.Errorf("it took %s to cancel", took)
		}
		if err := <-paused; err != nil {
			t.Error(err)
		}
	})
	in("a stop that cuts acts at once behind one that waits", func(t *testing.T, s rigged) {
		stopped := make(chan error, 1)
		go func() {
			_, err := s.Stop(ann(t), s.id, a2a.Stop{SavePartial: true})
			stopped <- err
		}()
		synctest.Wait()
		before := time.Now()
		wantState(t, s.stop(t, s.id, a2a.Stop{Force: true}), canceled)
		if took := time.Since(before); took > 0 {
			t.Errorf("it took %s to stop", took)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if n := s.calls.Load(); n != 1 {
			t.Errorf("%d calls, want 1", n)
		}
	})
}
