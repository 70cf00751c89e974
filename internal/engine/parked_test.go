package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/agent"
)

// A run that its record stops each time is not tried for ever: its task says so, and
// what comes for it has it tried again.
func TestS_49_ARunThatCannotBeStartedIsParked(t *testing.T) {
	for name, stop := range map[string]error{"lost": agent.ErrFenced, "not recorded": runs.ErrStorage} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				drives, broken := 0, true
				r := serve(t, 0, func(ctx context.Context, c runs.Claim) (runs.Park, error) {
					if drives++; broken {
						return runs.Park{}, fmt.Errorf("epoch %d: %w", c.Epoch, stop)
					}
					return end(ctx, c)
				})
				r.send("one")
				pass(time.Hour)
				status := r.task("one").GetStatus()
				if text := agent.Text(status.GetMessage()); drives != 10 || !strings.Contains(text, "parked") || !strings.Contains(text, "10 times") || !strings.Contains(text, "message") {
					t.Errorf("after %d drives the task says %q", drives, text)
				}
				if run := project.RunOf(r.task("one").GetMetadata()); len(run.GetWarnings()) != 1 {
					t.Errorf("its metadata says %v", run)
				}
				if n := r.logs.FilterMessageSnippet("run is parked").Len(); n != 1 || r.logs.Len() > 4 {
					t.Errorf("%d lines in the log: %v", r.logs.Len(), r.logs.All())
				}
				broken = false
				r.put("one")
				pass(time.Second)
				if task := r.task("one"); task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || task.GetStatus().GetMessage() != nil {
					t.Errorf("after a message the task is %v", task)
				}
			})
		})
	}
}

// While nobody's writes are taken that is not counted against a run.
func TestS_49_AnOutageParksNoRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &unready{Store: memstore.Open(t)}
		s.out.Store(true)
		drives := 0
		r := &rig{TB: t, Store: s.Store, Loop: engine.New(engine.Config{Leases: s, Replica: "r1"})}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- r.Serve(ctx, func(ctx context.Context, c runs.Claim) (runs.Park, error) {
				if drives++; s.out.Load() {
					return runs.Park{}, runs.ErrStorage
				}
				return end(ctx, c)
			})
		}()
		r.send("one")
		pass(time.Hour)
		s.out.Store(false)
		pass(10 * time.Second)
		if got := r.task("one").GetStatus().GetState(); got != a2av1.TaskState_TASK_STATE_COMPLETED {
			t.Errorf("%v after %d drives", got, drives)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// unready is a store that says whether it takes writes.
type unready struct {
	*sqlstore.Store
	out atomic.Bool
}

func (u *unready) Ready() error {
	if u.out.Load() {
		return errOut
	}
	return nil
}

// What goes wrong every second is not logged every second.
func TestS_49_AnOutageIsLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		s := &broken{Store: memstore.Open(t), refusals: 3600}
		e := engine.New(engine.Config{Leases: s, Log: zap.New(core)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Serve(ctx, end) }()
		pass(2 * time.Hour)
		failed, again := logs.FilterMessage("cannot claim runs").Len(), logs.FilterMessage("claiming runs works again").Len()
		if s.refusals > 0 || failed < 2 || failed > 20 || again != 1 {
			t.Errorf("logged %d times, and %d times that it is over; %d refusals are left", failed, again, s.refusals)
		}
		cancel()
		if err := <-done; !errors.Is(err, nil) {
			t.Error(err)
		}
	})
}
