package team_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

// command leaves a command for the run. The caller holds mu.
func (w *world) command(c teamv1.Commanded_Command) {
	n := int64(len(w.inbox) + 1)
	w.inbox = append(w.inbox, &teamv1.Inbound{
		N: n, Key: fmt.Sprint("command ", n), Kind: &teamv1.Inbound_Commanded{Commanded: &teamv1.Commanded{Command: c}},
	})
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// pausedAt is where the pause stands that the run is in; 0 is none. The caller holds mu.
func (w *world) pausedAt() int64 {
	at := int64(0)
	for _, ev := range w.events {
		switch ev.GetCommanded().GetCommand() {
		case teamv1.Commanded_COMMAND_PAUSE:
			at = ev.GetSeq()
		case teamv1.Commanded_COMMAND_RESUME:
			at = 0
		}
	}
	return at
}

// resume resumes the run if it is paused and nobody has yet.
func (w *world) resume() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if rows := len(w.inbox); w.pausedAt() == 0 || rows > 0 && w.inbox[rows-1].GetCommanded().GetCommand() == teamv1.Commanded_COMMAND_RESUME {
		return false
	}
	w.command(teamv1.Commanded_COMMAND_RESUME)
	return true
}

// liveOn is live of a run that is paused: once it waits, it is resumed.
func (w *world) liveOn() (done bool) {
	top := w.build(w.t, w)
	r := &drive.Runner{Agent: func(string) (agent.Agent, error) { return top, nil }, Replica: "r"}
	for {
		park, err := r.Drive(w.t.Context(), runs.Claim{Root: crashRoot, Epoch: 1, Journal: w})
		switch {
		case err != nil:
			if w.mu.Lock(); !w.dead {
				w.t.Fatalf("drive: %v", err)
			}
			w.mu.Unlock()
			return false
		case park.Done:
			return true
		}
		if w.answer() == 0 && !w.resume() {
			if rows, _ := w.Inbound(w.t.Context()); len(rows) == 0 {
				w.t.Fatalf("it waits, and there is nothing to answer and nothing to resume: %v", w.events)
			}
		}
	}
}

// S-44: a run is paused behind every one of its events. It stands still until it is
// resumed: where it waits, or at once, before it has come to that. The answer is the
// same, also where the process dies some events later.
func TestS_44_PauseAtEveryEvent(t *testing.T) {
	for _, m := range []struct {
		name  string
		build func(*testing.T, *world) *team.Team
		want  string
	}{
		{"all kinds of members", crashTeam, "SUCCEEDED: peer("}, {"leaders", crashLed, "SUCCEEDED: "},
		{"leaders that go on", crashAsync, "SUCCEEDED: "}, {"a swarm", crashSwarm, "SUCCEEDED: "},
		{"results that are worked over", crashReviewed, "SUCCEEDED: tides, ## c"},
	} {
		t.Run(m.name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			n, baseline := baselineOf(t, m.build, m.want)
			for variant, pauses := range map[string]func(*world){
				"resumed where it waits": func(w *world) { w.command(teamv1.Commanded_COMMAND_PAUSE) },
				"resumed at once": func(w *world) {
					w.command(teamv1.Commanded_COMMAND_PAUSE)
					w.command(teamv1.Commanded_COMMAND_RESUME)
				},
			} {
				for at := 1; at < n; at += sample.Stride() {
					for _, dies := range []int{-1, at % 11} {
						w := newWorld(t)
						w.build, w.pauseAt, w.pauses = m.build, at, pauses
						if dies >= 0 {
							w.budget = at + dies
						}
						for !w.liveOn() {
							w.crash(at%2 == 0)
						}
						w.verify(baseline)
						if t.Failed() {
							t.Fatalf("paused at %d, %s, died %d events later", at, variant, dies)
						}
					}
				}
			}
		})
	}
}

// C-15, R-002-8.2: a pause that is over at once does not shorten the time between two
// attempts, which a provider may have asked for.
func TestC_15_PauseKeepsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []time.Time
		flaky := &agent.Func{ID: "flaky", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
			if calls = append(calls, time.Now()); len(calls) == 1 {
				return nil, &agent.Error{Reason: agent.ReasonUnavailable, Retry: true, Fresh: true, RetryAfter: 30 * time.Second, Message: "busy"}
			}
			return agent.NewMessage("done"), nil
		}}
		top := newTeamWith(t, team.Config{ID: "t1", Scheduler: inOrder("flaky"), Members: members("flaky"), Registry: registry{"flaky": flaky}})
		run, over := &agent.Run{Root: crashRoot, Seed: 1}, make(chan error)
		go func() {
			req := briefed(nil)
			for { // again while it has stopped for a pause
				for ev, err := range top.Process(agent.With(t.Context(), run), req) {
					if err != nil || ev.GetReply() != nil {
						over <- err
						return
					}
					ev.Seq, ev.Time = int64(len(req.GetRecorded())+1), timestamppb.Now()
					req.Recorded = append(req.Recorded, ev)
				}
			}
		}()
		for range 5 {
			time.Sleep(5 * time.Second)
			run.Pause()
			run.Resume(run.Now())
		}
		if err := <-over; err != nil || len(calls) != 2 || calls[1].Sub(calls[0]) < 30*time.Second {
			t.Errorf("%v: called at %v", err, calls)
		}
	})
}

// C-15: a loop looks in each of its turns for what it has to close of a paused run. The
// record of what stands is looked at only where there is a cancel.
func TestC_15_WhatIsClosedWhilePaused(t *testing.T) {
	st := team.Recorded("1", []*teamv1.Event{
		{Scope: "1", Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: []*teamv1.Step{{Id: "1"}, {Id: "2"}}}}},
		{Scope: "1.1", Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{}}},
	})
	for canceled, want := range map[string]bool{"1": true, "1.1": false, "1.2": true, "1.3": false, "2": false, "12": false} {
		run := &agent.Run{}
		run.Cancel(canceled)
		if got := st.Closes(run); got != want {
			t.Errorf("%s is canceled: it has something to close: %v, want %v", canceled, got, want)
		}
	}
	run := &agent.Run{}
	run.Cancel("2")
	if n := testing.AllocsPerRun(100, func() { st.Closes(run) }); n > 0 {
		t.Errorf("%v allocations, although nothing of it was canceled", n)
	}
}

// S-24, S-43, S-44: a cancel or a stop comes together with a pause, behind every event
// of a run, and the process dies some events later. It acts all the same: the run
// ends CANCELED, each step that began with its own end.
func TestS_24_CancelBesidesAPause(t *testing.T) {
	const pause, cancel, stop = teamv1.Commanded_COMMAND_PAUSE, teamv1.Commanded_COMMAND_CANCEL, teamv1.Commanded_COMMAND_STOP
	for _, m := range []struct {
		name  string
		build func(*testing.T, *world) *team.Team
		want  string
	}{
		{"all kinds of members", crashTeam, "SUCCEEDED: peer("}, {"leaders that go on", crashAsync, "SUCCEEDED: "},
		{"results that are worked over", crashReviewed, "SUCCEEDED: tides, ## c"},
	} {
		t.Run(m.name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			n, _ := baselineOf(t, m.build, m.want)
			for _, commands := range [][]teamv1.Commanded_Command{{pause, cancel}, {cancel, pause}, {pause, stop}, {stop, pause}} {
				for at := 1; at < n; at++ {
					w := newWorld(t)
					w.build, w.pauseAt = m.build, at
					w.pauses = func(w *world) {
						for _, c := range commands {
							w.command(c)
						}
					}
					if at%2 == 0 {
						w.budget = at + at%7
					}
					for !w.liveOn() {
						w.crash(at%4 == 0)
					}
					w.wantCanceled(cancel, stop)
					if t.Failed() {
						t.Fatalf("%v at %d", commands, at)
					}
				}
			}
		})
	}
}

// wantCanceled checks that a run that one of the commands reached was canceled by it.
func (w *world) wantCanceled(by ...teamv1.Commanded_Command) {
	w.t.Helper()
	w.mu.Lock() // what was left behind may not have ended
	defer w.mu.Unlock()
	open, reached := map[string]int{}, false
	for _, ev := range w.events {
		c := ev.GetCommanded()
		reached = reached || c != nil && slices.Contains(by, c.GetCommand())
		if ev.GetStarted() != nil {
			open[ev.GetScope()] = 1
		}
		if ev.GetEnded() != nil {
			open[ev.GetScope()]--
		}
	}
	for scope, n := range open {
		if n > 0 {
			w.t.Errorf("I1: step %q has begun, and has no end: %v", scope, w.events)
		}
	}
	if o := w.events[len(w.events)-1].GetEnded().GetOutcome(); reached != (o == teamv1.Outcome_OUTCOME_CANCELED) { // else it came behind the end
		w.t.Errorf("it has ended %s, and the command is on record: %v: %v", o, reached, w.events)
	}
}
