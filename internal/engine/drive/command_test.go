package drive_test

import (
	"slices"
	"sync/atomic"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/scripted"
	"github.com/agentteams/team-server/pkg/team"
)

const (
	pauseIt  = teamv1.Commanded_COMMAND_PAUSE
	resumeIt = teamv1.Commanded_COMMAND_RESUME
	stopIt   = teamv1.Commanded_COMMAND_STOP
)

// S-44: the process dies at every event of a run that is paused while a member works,
// another one has asked and a third has not begun. What comes next begins nothing
// until the run is resumed, and the answer is the same.
func TestS_44_CrashOfAPausedRun(t *testing.T) {
	crashes := int64(0)
	for ended := false; !ended; crashes++ {
		ended = crashPaused(t, crashes)
	}
	if crashes < 15 {
		t.Errorf("%d crashes", crashes)
	}
}

// crashPaused lets the first process of a run die after so many events, and reports
// whether there are no more.
func crashPaused(t *testing.T, events int64) (ended bool) {
	t.Helper()
	g := newGate("gate")
	asks, err := scripted.New(scripted.Config{ID: "asks", Steps: []*teamv1.ScriptedStep{
		{Do: &teamv1.ScriptedStep_Ask{Ask: "which?"}}, {Do: &teamv1.ScriptedStep_Text{Text: "{{answer}}"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	all := newAgents(t, g, asks, echo("third"), echo("last"))
	limits := &teamv1.Limits{MaxParallel: new(int32(2))}
	all.newPair(t, team.Config{ID: "inner", Limits: limits}, "gate", "asks", "third")
	all.newTeam(t, "team", "inner", "last")
	s := newSingle(t, "team")
	var seen atomic.Int64
	dead := &dying{at: func(*teamv1.Event) bool { return seen.Add(1) > events }}
	paused, resumed, answered := false, false, false
	for claims := 0; ; claims++ {
		if claims > 20 {
			t.Fatalf("crash after %d events: it does not end: %v", events, s.events(t))
		}
		c := s.take(t)
		if claims == 0 {
			dead.Journal, c.Journal = c.Journal, dead
		}
		done := make(chan runs.Park, 1)
		go func() {
			park, err := all.runner().Drive(t.Context(), c)
			if err != nil && !dead.dead.Load() {
				t.Error(err)
			}
			done <- park
		}()
		var park runs.Park
		select {
		case <-g.entered:
			if !paused {
				paused = true
				s.command(t, "pause", &teamv1.Commanded{Command: pauseIt})
			}
			if claims == 0 && !dead.dead.Load() {
				s.untilOr(t, done, &park, isCommand(pauseIt))
			}
			g.open()
			park = <-done
		case park = <-done:
		}
		died := dead.dead.Load() && claims == 0
		if park.Done && !died {
			break
		}
		s.die(t)
		now := s.events(t)
		switch {
		case died: // the next one goes on
		case slices.ContainsFunc(now, isCommand(pauseIt)) && !resumed:
			wantState(t, s.task(t), working)
			resumed = true
			s.command(t, "resume", &teamv1.Commanded{Command: resumeIt})
		case !answered:
			q := project.RunOf(wantState(t, s.task(t), inputRequired).GetMetadata()).GetQuestions()[0]
			answered = true
			in := &teamv1.Inbound{Key: "answer", Scope: "1.2", Kind: &teamv1.Inbound_Answered{Answered: &teamv1.Answered{
				Question: q.GetQuestion(), Message: agent.UserMessage("answer", "blue"),
			}}}
			if _, _, err := s.Put(t.Context(), s.key, in, nil, nil); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("crash after %d events: it waits for nothing: %v", events, now)
		}
	}
	wantState(t, s.task(t), completed)
	wantNothingBegan(t, s.events(t))
	return !dead.dead.Load()
}

// wantNothingBegan checks that nothing began between a pause and its end, or after a stop.
func wantNothingBegan(t testing.TB, events []*teamv1.Event) {
	t.Helper()
	paused := false
	for _, ev := range events {
		switch {
		case isCommand(pauseIt)(ev), isCommand(stopIt)(ev):
			paused = true
		case isCommand(resumeIt)(ev):
			paused = false
		case paused && ev.GetStarted() != nil && ev.GetScope() != "":
			t.Errorf("%s %s began: %v", ev.GetScope(), ev.GetAgent(), ev)
		}
	}
}

// S-43: the process dies at every event from the stop on; the next one goes on with
// it, begins nothing, and shows nothing that was dropped.
func TestS_43_CrashAfterTheStop(t *testing.T) {
	for _, force := range []bool{false, true} {
		crashes := int64(0)
		for ended := false; !ended; crashes++ {
			ended = crashStopped(t, crashes, force)
		}
		if crashes < 4 {
			t.Errorf("force=%v: %d crashes", force, crashes)
		}
	}
}

func crashStopped(t *testing.T, events int64, force bool) (ended bool) {
	t.Helper()
	g := newGate("gate")
	all := newAgents(t, echo("one"), g, echo("never"))
	all.newTeam(t, "inner", "one", "gate", "never")
	all.newTeam(t, "team", "inner")
	s := newSingle(t, "team")
	c := s.take(t)
	var seen atomic.Int64
	j := &dying{Journal: c.Journal, at: func(ev *teamv1.Event) bool {
		return (ev.GetCommanded() != nil || seen.Load() > 0) && seen.Add(1) > events
	}}
	done := make(chan runs.Park, 1)
	go func() {
		park, _ := all.runner().Drive(t.Context(), runs.Claim{Root: c.Root, Epoch: c.Epoch, Journal: j})
		done <- park
	}()
	<-g.entered
	s.command(t, "stop", &teamv1.Commanded{Command: stopIt, Force: force})
	var park runs.Park
	s.untilOr(t, done, &park, isCommand(stopIt))
	g.open()
	if <-done; j.dead.Load() {
		s.die(t)
		if park, err := all.runner().Drive(t.Context(), s.take(t)); err != nil || !park.Done {
			t.Fatal(events, park, err)
		}
	}
	task := wantState(t, s.task(t), canceled)
	if len(task.GetArtifacts()) > 0 || project.RunOf(task.GetMetadata()).GetError().GetMessage() != "stopped" {
		t.Errorf("the task is %v", task)
	}
	wantNothingBegan(t, s.events(t))
	child, _, err := s.Task(t.Context(), runs.Key{Owner: s.key.Owner, ID: s.key.ID + "~1.1"})
	if err != nil || len(child.GetArtifacts()) > 0 || child.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
		t.Errorf("the child is %v, %v", child, err)
	}
	return !j.dead.Load()
}
