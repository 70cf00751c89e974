package a2a_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

// paused reports whether a task says that it is paused.
func paused(task *a2av1.Task) bool { return project.RunOf(task.GetMetadata()).GetPaused() }

// pause pauses a task and checks that it says so.
func (r *rig) pause(t testing.TB, id string) {
	t.Helper()
	task, err := r.Pause(ann(t), id)
	if err != nil || !paused(task) {
		t.Fatalf("paused: %v, %v", task, err)
	}
	if task := r.get(t, id); !project.RunOf(task.GetMetadata()).GetPaused() {
		t.Fatalf("the task does not say that it is paused: %v", task)
	}
}

func (r *rig) resume(t testing.TB, id string) {
	t.Helper()
	task, err := r.Resume(ann(t), id)
	if err != nil || paused(task) {
		t.Fatalf("paused: %v, %v", task, err)
	}
}

// parked waits until a paused run waits to be resumed.
func (r *rig) parked(t testing.TB, id string) {
	t.Helper()
	wake, stop := r.store.Watch(id)
	defer stop()
	for {
		events := r.record(t, id)
		if w := events[len(events)-1]; w.GetScope() == "" && w.GetWaiting().GetPaused() {
			return
		}
		select {
		case <-wake:
		case <-time.After(time.Minute):
			t.Fatalf("it does not park: %v", events)
		}
	}
}

// wantGate checks that nothing began while a run was paused, and returns how often it was.
func (r *rig) wantGate(t testing.TB, id string) (pauses int) {
	t.Helper()
	paused := false
	for _, ev := range r.record(t, id) {
		switch c := ev.GetCommanded().GetCommand(); {
		case c == teamv1.Commanded_COMMAND_PAUSE:
			paused = true
			pauses++
		case c == teamv1.Commanded_COMMAND_RESUME:
			paused = false
		case paused && ev.GetStarted() != nil:
			t.Errorf("%s %s began while the run was paused: %v", ev.GetScope(), ev.GetAgent(), ev)
		}
	}
	return pauses
}

// S-44, R-001-39: of a paused task nothing begins; what runs goes on to its end.
func TestS_44_PauseAndResume(t *testing.T) {
	nested := func(t *testing.T) (*rig, *gate, *gate) {
		one, two := newGate("one"), newGate("two")
		r := start(t, one, two)
		r.newTeam(t, "inner", through("one", "two"), "one", "two")
		r.newTeam(t, "middle", through("inner"), "inner")
		r.newTeam(t, "outer", through("middle"), "middle")
		return r, one, two
	}
	t.Run("three levels: paused with a member at work, resumed when it has parked", func(t *testing.T) {
		r, one, two := nested(t)
		id := r.send(t, ann(t), atOnce(message("outer", "hi"))).GetId()
		<-one.entered
		r.pause(t, id)
		one.open()
		r.parked(t, id)
		wantState(t, r.get(t, id+"~1.1.1"), completed)
		if len(two.entered) > 0 {
			t.Error("the next member was called")
		}
		two.open()
		r.resume(t, id)
		r.until(t, id, completed)
		r.wantGate(t, id)
	})
	t.Run("resumed before it has parked", func(t *testing.T) {
		r, one, two := nested(t)
		two.open()
		id := r.send(t, ann(t), atOnce(message("outer", "hi"))).GetId()
		<-one.entered
		r.pause(t, id)
		r.resume(t, id)
		one.open()
		r.until(t, id, completed)
		r.wantGate(t, id)
	})
	t.Run("readers of the task and of its parts are told", func(t *testing.T) {
		r, one, two := nested(t)
		two.open()
		root := r.send(t, ann(t), atOnce(message("outer", "hi"))).GetId()
		<-one.entered
		told := map[string]chan []bool{}
		for _, id := range []string{root, root + "~1.1"} {
			updates, heard := r.subscribe(t, id, 0), make(chan []bool, 1)
			told[id] = heard
			go func() {
				var all []bool
				for u := range updates {
					if s := u.Response.GetStatusUpdate(); s != nil {
						all = append(all, project.RunOf(s.GetMetadata()).GetPaused())
					}
				}
				heard <- all
			}()
		}
		r.pause(t, root)
		if !project.RunOf(r.get(t, root+"~1.1").GetMetadata()).GetPaused() {
			t.Error("the part does not say that it is paused")
		}
		one.open()
		r.parked(t, root)
		r.resume(t, root)
		r.until(t, root, completed)
		for id, heard := range told {
			if got := <-heard; !slices.Equal(slices.Compact(got), []bool{true, false}) {
				t.Errorf("readers of %s are told %v", id, got)
			}
		}
	})
	t.Run("again is nothing new", func(t *testing.T) {
		r, one, two := nested(t)
		two.open()
		id := r.send(t, ann(t), atOnce(message("outer", "hi"))).GetId()
		<-one.entered
		r.resume(t, id)
		r.pause(t, id)
		r.pause(t, id)
		one.open()
		r.parked(t, id)
		r.pause(t, id)
		if n := r.wantGate(t, id); n != 1 {
			t.Errorf("%d pauses are on record", n)
		}
		r.resume(t, id)
		r.resume(t, id)
		r.until(t, id, completed)
		r.pause2(t, id)
	})
	t.Run("a cancel of a paused task", func(t *testing.T) {
		r, one, _ := nested(t)
		id := r.send(t, ann(t), atOnce(message("outer", "hi"))).GetId()
		<-one.entered
		r.pause(t, id)
		one.open()
		r.parked(t, id)
		wantState(t, r.cancel(t, id), canceled)
		wantState(t, r.get(t, id+"~1.1"), canceled)
	})
	t.Run("a cancel of a part of a paused task", func(t *testing.T) {
		r, one, _ := nested(t)
		id := r.send(t, ann(t), atOnce(message("outer", "hi"))).GetId()
		<-one.entered
		r.pause(t, id)
		one.open()
		r.parked(t, id)
		wantState(t, r.cancel(t, id+"~1.1"), canceled)
		wantState(t, r.get(t, id), working)
		r.resume(t, id)
		r.until(t, id, failed)
		r.wantGate(t, id)
	})
	t.Run("branches, of which one is at work and one has not begun", func(t *testing.T) {
		one, two := newGate("one"), newGate("two")
		r := start(t, one, two)
		r.newTeamOf(t, team.Config{ID: "team", Scheduler: together("one", "two"), Limits: &teamv1.Limits{MaxParallel: new(int32(1))}}, "one", "two")
		id := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
		<-one.entered
		r.pause(t, id)
		one.open()
		two.open()
		r.parked(t, id)
		wantState(t, r.get(t, id+"~2"), submitted)
		r.resume(t, id)
		r.until(t, id, completed)
		r.wantGate(t, id)
	})
	t.Run("a task that waits for people, answered while it is paused", func(t *testing.T) {
		next := newGate("next")
		next.open()
		r := start(t, script(t, "asks", ask("which?"), say("{{answer}}")), next)
		r.newTeam(t, "inner", through("asks", "next"), "asks", "next")
		r.newTeam(t, "team", through("inner"), "inner")
		id := wantState(t, r.send(t, ann(t), message("team", "hi")), inputRequired).GetId()
		r.pause(t, id)
		wantState(t, r.get(t, id), inputRequired)
		r.send(t, ann(t), atOnce(reply(id, "blue")))
		r.answered(t, id)
		r.resume(t, id)
		if got := answer(t, r.until(t, id, completed)); got != "through: blue" {
			t.Errorf("the answer is %q", got)
		}
		r.wantGate(t, id)
	})
	t.Run("a branch that was held goes on beside one that waits for people", func(t *testing.T) {
		g, next := newGate("gate"), newGate("next")
		r := start(t, script(t, "asks", ask("which?"), say("{{answer}}")), g, next)
		r.newTeam(t, "flow", through("gate", "next"), "gate", "next")
		r.newTeam(t, "inner", together("asks", "flow"), "asks", "flow")
		r.newTeam(t, "team", through("inner"), "inner")
		id := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
		<-g.entered
		r.until(t, id+"~1.1", inputRequired)
		r.pause(t, id)
		g.open()
		r.parked(t, id)
		wantState(t, r.get(t, id), working)
		r.resume(t, id)
		<-next.entered
		next.open()
		r.until(t, id, inputRequired)
		r.send(t, ann(t), reply(id, "blue"))
		r.until(t, id, completed)
		r.wantGate(t, id)
	})
	t.Run("a part of a task, or a foreign one, cannot be paused", func(t *testing.T) {
		r, one, _ := nested(t)
		id := r.send(t, ann(t), atOnce(message("outer", "hi"))).GetId()
		<-one.entered
		_, err := r.Pause(ann(t), id+"~1")
		wantError(t, err, a2aerror.ReasonUnsupportedOperation)
		_, err = r.Pause(bob(t), id)
		wantError(t, err, a2aerror.ReasonTaskNotFound)
		r.cancel(t, id)
	})
}

// R-001-39, C-15: what is not on record yet counts all the same: a task that nobody
// drives, as its owner has died or all slots are taken, goes on or stands still as
// the last one said.
func TestR_001_39_TurnsThatNobodyHasRecorded(t *testing.T) {
	r := start(t, echo("leaf"))
	for _, tt := range []struct {
		name   string
		turns  string
		paused bool
	}{
		{"paused and resumed", "pr", false},
		{"and paused again", "prp", true},
		{"each of them twice", "pprr", false},
		{"resumed before", "rprprr", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := memstore.Open(t)
			task := runs.Key{Owner: "acme/ann", ID: uuid.NewString()}
			acc := &teamv1.Accepted{TaskId: task.ID, Agent: "leaf", Owner: task.Owner, Message: agent.UserMessage("m", "hi")}
			if _, _, err := s.Create(t.Context(), runs.New{Owner: task.Owner, Accepted: acc, MessageID: "m"}); err != nil {
				t.Fatal(err)
			}
			h := a2a.NewHandler(a2a.Config{Agents: r.agents, Store: s, Wake: func() {}, CancelWait: time.Millisecond})
			for i, turn := range tt.turns {
				do := h.Resume
				if turn == 'p' {
					do = h.Pause
				}
				f, err := do(ann(t), task.ID)
				if err != nil || paused(f) != (turn == 'p') {
					t.Fatalf("turn %d: paused %v, %v", i, paused(f), err)
				}
			}
			claims, _, err := s.Claim(t.Context(), "r", engine.NewRoom(1, nil))
			if err != nil || len(claims) != 1 {
				t.Fatal(claims, err)
			}
			park, err := (&drive.Runner{Agent: r.agents.Get}).Drive(t.Context(), claims[0])
			if err != nil || park.Done == tt.paused {
				t.Errorf("it has ended: %v, %v", park.Done, err)
			}
		})
	}
}

// pause2 pauses a task that has ended: it stays as it is.
func (r *rig) pause2(t testing.TB, id string) {
	t.Helper()
	task, err := r.Pause(ann(t), id)
	if err != nil || paused(task) || !taskstate.Final(task.GetStatus().GetState()) {
		t.Errorf("paused: %v, %v", task, err)
	}
}

// answered waits until the answer to a question is on record.
func (r *rig) answered(t testing.TB, id string) {
	t.Helper()
	for range 10_000 {
		for _, ev := range r.record(t, id) {
			if ev.GetAnswered() != nil {
				return
			}
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("no answer is on record")
}
