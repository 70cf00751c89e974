package a2a_test

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

func (r *rig) stop(t testing.TB, id string, s a2a.Stop) *a2av1.Task {
	t.Helper()
	task, err := r.Stop(ann(t), id, s)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// secretText is what members say in these tests: a task that does not show it does not hold it.
const secretText = "echo: hi"

// shows reports whether the task, or one below it, has artifacts as it is.
func (r *rig) shows(t testing.TB, id string) bool {
	t.Helper()
	n := 0
	for _, id := range []string{id, id + "~1", id + "~1.1"} {
		n += len(r.get(t, id).GetArtifacts())
		task, err := r.GetTask(detailed(ann(t)), &a2av1.GetTaskRequest{Id: id})
		if err != nil {
			t.Fatal(err)
		}
		n += len(task.GetArtifacts())
	}
	for _, task := range r.list(t, &a2av1.ListTasksRequest{IncludeArtifacts: new(true)}).GetTasks() {
		n += len(task.GetArtifacts())
	}
	return n > 0
}

// S-43, R-001-40 to R-001-43: a stop cuts what runs or waits for it, keeps or drops
// what there is, and is the same the second time.
func TestS_43_Stop(t *testing.T) {
	begin := func(t *testing.T) (r *rig, id string, g *gate) {
		t.Helper()
		g = newGate("gate")
		r = start(t, echo("one"), g, echo("never"))
		r.newTeam(t, "inner", through("one", "gate", "never"), "one", "gate", "never")
		r.newTeam(t, "team", through("inner"), "inner")
		id = r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
		<-g.entered
		return r, id, g
	}
	wantStopped := func(t *testing.T, r *rig, id string, stops int) {
		t.Helper()
		task := wantState(t, r.get(t, id), canceled)
		if e := project.RunOf(task.GetMetadata()).GetError(); e.GetReason() != agent.ReasonCanceled || e.GetMessage() != "stopped" {
			t.Errorf("the error is %v", e)
		}
		events := r.record(t, id)
		n := 0
		for _, ev := range events {
			if ev.GetCommanded().GetCommand() == teamv1.Commanded_COMMAND_STOP {
				n++
			}
			if ev.GetStarted() != nil && ev.GetScope() == "1.3" {
				t.Error("a step began after the stop")
			}
		}
		if n != stops {
			t.Errorf("%d stops are on record, want %d", n, stops)
		}
		if !slices.ContainsFunc(events, func(ev *teamv1.Event) bool { return agent.Text(ev.GetEnded().GetReply()) == secretText }) {
			t.Error("the record does not keep what a member said")
		}
		r.oneEnd(t, id, task, nil)
	}
	for _, force := range []bool{true, false} {
		for _, save := range []bool{true, false} {
			t.Run(fmt.Sprintf("force=%v save_partial=%v", force, save), func(t *testing.T) {
				r, id, g := begin(t)
				s := a2a.Stop{Force: force, SavePartial: save, Reason: "enough"}
				if force {
					before := time.Now()
					r.stop(t, id, s)
					if took := time.Since(before); took > 5*time.Second {
						t.Errorf("it took %s", took)
					}
					wantState(t, r.get(t, id+"~1.2"), canceled)
				} else {
					done := make(chan *a2av1.Task, 1)
					go func() { done <- r.stop(t, id, s) }()
					r.recorded(t, id, 1, func(ev *teamv1.Event) bool { return ev.GetCommanded() != nil })
					wantState(t, r.get(t, id), working)
					if shown := r.shows(t, id); shown != save {
						t.Errorf("before the end it shows artifacts: %v", shown)
					}
					g.open()
					<-done
					wantState(t, r.get(t, id+"~1.2"), completed)
				}
				wantStopped(t, r, id, 1)
				if shown := r.shows(t, id); shown != save {
					t.Errorf("it shows artifacts: %v", shown)
				}
				before := r.get(t, id)
				r.stop(t, id, a2a.Stop{Force: true, SavePartial: !save})
				equal(t, before, r.get(t, id))
				wantStopped(t, r, id, 1)
			})
		}
	}
	t.Run("after the end it changes nothing", func(t *testing.T) {
		r := start(t, echo("one"))
		r.newTeam(t, "team", through("one"), "one")
		task := wantState(t, r.send(t, ann(t), message("team", "hi")), completed)
		wantState(t, r.stop(t, task.GetId(), a2a.Stop{Force: true}), completed)
		equal(t, task, r.get(t, task.GetId()))
	})
	t.Run("a forced one, or a cancel, cuts what another one waits for", func(t *testing.T) {
		for _, cut := range []func(*rig, string){
			func(r *rig, id string) { r.stop(t, id, a2a.Stop{Force: true, SavePartial: true}) },
			func(r *rig, id string) { r.cancel(t, id) },
		} {
			r, id, _ := begin(t)
			done := make(chan *a2av1.Task, 1)
			go func() { done <- r.stop(t, id, a2a.Stop{}) }()
			r.recorded(t, id, 1, func(ev *teamv1.Event) bool { return ev.GetCommanded() != nil })
			cut(r, id)
			wantState(t, r.get(t, id), canceled)
			wantState(t, <-done, canceled)
			if r.shows(t, id) {
				t.Error("it shows the artifacts that the first one dropped")
			}
		}
	})
	t.Run("streams", func(t *testing.T) {
		g := newGate("gate")
		r := start(t, echo("one"), g)
		tm, err := team.New(team.Config{
			ID: "team", Scheduler: through("one", "gate"), Members: []team.Member{{Agent: "one", StreamInner: true}, {Agent: "gate"}}, Registry: r.agents,
		})
		if err != nil {
			t.Fatal(err)
		}
		r.add(t, tm)
		id := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
		<-g.entered
		along, err := r.SubscribeToTask(ann(t), &a2av1.SubscribeToTaskRequest{Id: id}, 1)
		if err != nil {
			t.Fatal(err)
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			_, _ = r.Stop(ann(t), id, a2a.Stop{})
		}()
		r.recorded(t, id, 1, func(ev *teamv1.Event) bool { return ev.GetCommanded() != nil })
		late, err := r.SubscribeToTask(ann(t), &a2av1.SubscribeToTaskRequest{Id: id}, 0)
		if err != nil {
			t.Fatal(err)
		}
		again, err := r.SubscribeToTask(ann(t), &a2av1.SubscribeToTaskRequest{Id: id}, 1)
		if err != nil {
			t.Fatal(err)
		}
		g.open()
		<-stopped
		for _, tt := range []struct {
			name    string
			updates iter.Seq2[feed.Update, error]
			want    bool
		}{{"who reads along keeps what it was told", along, true}, {"behind a cursor from before the stop it is told again", again, true}, {"who comes late is told none", late, false}} {
			told := false
			for u, err := range tt.updates {
				if err != nil {
					t.Fatal(err)
				}
				told = told || u.Response.GetArtifactUpdate() != nil || len(u.Response.GetTask().GetArtifacts()) > 0
			}
			if told != tt.want {
				t.Errorf("%s: artifacts %v", tt.name, told)
			}
		}
	})
	t.Run("of a paused task", func(t *testing.T) {
		r, id, g := begin(t)
		r.pause(t, id)
		g.open()
		r.parked(t, id)
		r.stop(t, id, a2a.Stop{SavePartial: true})
		wantStopped(t, r, id, 1)
		wantState(t, r.get(t, id+"~1"), canceled)
	})
	t.Run("of a task that waits for people", func(t *testing.T) {
		r := start(t, script(t, "asks", ask("which?"), say("{{answer}}")))
		r.newTeam(t, "team", through("asks"), "asks")
		id := wantState(t, r.send(t, ann(t), message("team", "hi")), inputRequired).GetId()
		r.stop(t, id, a2a.Stop{})
		wantState(t, r.get(t, id), canceled)
	})
	t.Run("pause and stop at once", func(t *testing.T) {
		for range 20 {
			r, id, g := begin(t)
			done := make(chan struct{}, 2)
			go func() { _, _ = r.Pause(ann(t), id); done <- struct{}{} }()
			go func() { r.stop(t, id, a2a.Stop{SavePartial: true}); done <- struct{}{} }()
			r.recorded(t, id, 1, func(ev *teamv1.Event) bool {
				return ev.GetCommanded().GetCommand() == teamv1.Commanded_COMMAND_STOP
			})
			g.open()
			<-done
			<-done
			wantStopped(t, r, id, 1)
		}
	})
	t.Run("of a leaf that answers all the same", func(t *testing.T) {
		g := newGate("gate")
		r := start(t, g)
		id := r.send(t, ann(t), atOnce(message("gate", "hi"))).GetId()
		<-g.entered
		done := make(chan *a2av1.Task, 1)
		go func() { done <- r.stop(t, id, a2a.Stop{SavePartial: true}) }()
		r.recorded(t, id, 1, func(ev *teamv1.Event) bool { return ev.GetCommanded() != nil })
		g.open()
		wantState(t, <-done, canceled)
	})
}

// R-001-42: another server's reader, that reads a stopped run once more from its
// beginning, reads the whole record, also of a stop that drops the results.
func TestR_001_42_ProcessStreamOfAStoppedRun(t *testing.T) {
	for _, save := range []bool{true, false} {
		g := newGate("gate")
		r := start(t, echo("one"), g)
		r.newTeam(t, "team", through("one", "gate"), "one", "gate")
		req := &teamv1.ProcessStreamRequest{Request: &teamv1.ProcessRequest{AgentId: "team", Message: agent.UserMessage("m", "hi")}}
		told := make(chan struct{})
		tell := sync.OnceFunc(func() { close(told) })
		read := func() (ends int, all string) {
			events, err := r.ProcessStream(ann(t), req)
			if err != nil {
				t.Fatal(err)
			}
			for resp, err := range events {
				if err != nil {
					t.Fatal(err)
				}
				if resp.GetEvent().GetEnded() != nil {
					ends++
				}
				b, err := protojson.Marshal(resp)
				if err != nil {
					t.Fatal(err)
				}
				if all += string(b); strings.Contains(all, secretText) {
					tell()
				}
			}
			return ends, all
		}
		done := make(chan struct{})
		go func() {
			read()
			close(done)
		}()
		<-g.entered
		<-told // who reads along is told what comes before the stop
		id := r.list(t, &a2av1.ListTasksRequest{}).GetTasks()[0].GetId()
		r.stop(t, id, a2a.Stop{Force: true, SavePartial: save})
		<-done
		ends, all := read()
		if ends != 3 || !strings.Contains(all, secretText) {
			t.Errorf("save_partial=%v: %d ends, %s", save, ends, all)
		}
	}
}
