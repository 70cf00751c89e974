package a2a_test

import (
	"context"
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
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

func (r *rig) stop(t testing.TB, id string, s a2a.Stop) *a2a.Fold {
	t.Helper()
	f, err := r.Stop(ann(t), id, s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// secretText is what members say in these tests: a task that does not show it does not hold it.
const secretText = "echo: hi"

// shows reports whether anything that readers get of a task holds what its members said.
func (r *rig) shows(t testing.TB, id string) bool {
	t.Helper()
	var all []string
	add := func(task *a2av1.Task) {
		b, err := protojson.Marshal(task)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(b))
	}
	for _, id := range []string{id, id + "~1", id + "~1.1"} {
		add(r.get(t, id))
		task, err := r.GetTask(detailed(ann(t)), &a2av1.GetTaskRequest{Id: id})
		if err != nil {
			t.Fatal(err)
		}
		add(task)
		for _, ctx := range []context.Context{ann(t), detailed(ann(t))} {
			updates, err := r.SubscribeToTask(ctx, &a2av1.SubscribeToTaskRequest{Id: id}, 1) // all that was told
			if err != nil {
				continue
			}
			for u, err := range updates {
				if err != nil {
					t.Fatal(err)
				}
				b, err := protojson.Marshal(u.Response)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, string(b))
			}
		}
	}
	for _, task := range r.list(t, &a2av1.ListTasksRequest{IncludeArtifacts: new(true)}).GetTasks() {
		add(task)
	}
	all = append(all, r.pushed(t, id)...)
	return strings.Contains(strings.Join(all, "\n"), secretText)
}

// pushed is what a receiver of push notifications is told that has seen nothing of
// a task that has ended.
func (r *rig) pushed(t testing.TB, id string) []string {
	t.Helper()
	box, err := r.Outbox(t.Context(), a2a.Push{Task: a2a.Key{Owner: "acme/ann", ID: id}, PushState: a2a.PushState{Seen: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	var told []string
	for {
		n, err := box.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n == nil {
			break
		}
		b, err := protojson.Marshal(n.Response)
		if err != nil {
			t.Fatal(err)
		}
		told = append(told, string(b))
	}
	if len(told) == 0 {
		t.Error("nothing is pushed")
	}
	return told
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
		if e := a2a.RunOf(task.GetMetadata()).GetError(); e.GetReason() != agent.ReasonCanceled || e.GetMessage() != "stopped" {
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
					if took := time.Since(before); took > time.Second {
						t.Errorf("it took %s", took)
					}
					wantState(t, r.get(t, id+"~1.2"), canceled)
				} else {
					done := make(chan *a2a.Fold, 1)
					go func() { done <- r.stop(t, id, s) }()
					r.recorded(t, id, 1, func(ev *teamv1.Event) bool { return ev.GetCommanded() != nil })
					wantState(t, r.get(t, id), working)
					if shown := r.showsNow(t, id); shown != save {
						t.Errorf("before the end it shows what a member said: %v", shown)
					}
					g.open()
					<-done
					wantState(t, r.get(t, id+"~1.2"), completed)
				}
				wantStopped(t, r, id, 1)
				if shown := r.shows(t, id); shown != save {
					t.Errorf("it shows what a member said: %v", shown)
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
		if f := r.stop(t, task.GetId(), a2a.Stop{Force: true}); f.State() != completed {
			t.Errorf("it is %s", f.State())
		}
		equal(t, task, r.get(t, task.GetId()))
	})
	t.Run("a forced one, or a cancel, cuts what another one waits for", func(t *testing.T) {
		for _, cut := range []func(*rig, string){
			func(r *rig, id string) { r.stop(t, id, a2a.Stop{Force: true, SavePartial: true}) },
			func(r *rig, id string) { r.cancel(t, id) },
		} {
			r, id, _ := begin(t)
			done := make(chan *a2a.Fold, 1)
			go func() { done <- r.stop(t, id, a2a.Stop{}) }()
			r.recorded(t, id, 1, func(ev *teamv1.Event) bool { return ev.GetCommanded() != nil })
			cut(r, id)
			wantState(t, r.get(t, id), canceled)
			if f := <-done; f.State() != canceled {
				t.Errorf("the first is told %s", f.State())
			}
			if r.shows(t, id) {
				t.Error("it shows what the first one dropped")
			}
		}
	})
	t.Run("who comes late reads nothing of what it drops from those who read along", func(t *testing.T) {
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
		ctx, leave := context.WithCancel(ann(t))
		defer leave()
		along, err := r.SubscribeToTask(ctx, &a2av1.SubscribeToTaskRequest{Id: id}, 1)
		if err != nil {
			t.Fatal(err)
		}
		next, done := iter.Pull2(along)
		defer done()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			_, _ = r.Stop(ann(t), id, a2a.Stop{})
		}()
		heard := ""
		for !strings.Contains(heard, secretText) { // of what its member said
			u, err, more := next()
			if err != nil || !more {
				t.Fatal(err, more)
			}
			heard += fmt.Sprint(u.Response)
		}
		r.recorded(t, id, 1, func(ev *teamv1.Event) bool { return ev.GetCommanded() != nil })
		late, err := r.SubscribeToTask(ctx, &a2av1.SubscribeToTaskRequest{Id: id}, 1)
		if err != nil {
			t.Fatal(err)
		}
		g.open()
		for u, err := range late {
			if err != nil || strings.Contains(fmt.Sprint(u.Response), secretText) {
				t.Errorf("who comes late is told %v, %v", u.Response, err)
			}
		}
		<-stopped
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
		done := make(chan *a2a.Fold, 1)
		go func() { done <- r.stop(t, id, a2a.Stop{SavePartial: true}) }()
		r.recorded(t, id, 1, func(ev *teamv1.Event) bool { return ev.GetCommanded() != nil })
		g.open()
		if f := <-done; f.State() != canceled {
			t.Errorf("it is %s", f.State())
		}
	})
}

// showsNow is shows of the task and its children as they are.
func (r *rig) showsNow(t testing.TB, id string) bool {
	t.Helper()
	for _, id := range []string{id, id + "~1", id + "~1.1"} {
		b, err := protojson.Marshal(r.get(t, id))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), secretText) {
			return true
		}
	}
	return false
}

// R-001-42: another server's reader, that reads a stopped run once more from its
// beginning, learns that steps began and ended, and nothing of what they brought.
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
		if ends != 3 || strings.Contains(all, secretText) != save {
			t.Errorf("save_partial=%v: %d ends, %s", save, ends, all)
		}
	}
}
