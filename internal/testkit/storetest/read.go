package storetest

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
)

func reads(t *testing.T, open Open) {
	t.Run("A-05 a task is its owner's alone", func(t *testing.T) {
		r := newRig(t, open)
		r.create(task("one"))
		k := runs.Key{Owner: "acme/bob", ID: "one"}
		_, _, terr := r.Task(r.ctx(), k)
		_, eerr := r.Events(r.ctx(), k, 0, 10)
		_, _, perr := r.Put(r.ctx(), k, followUp("f"), nil, nil)
		for _, err := range []error{terr, eerr, perr} {
			if !errors.Is(err, runs.ErrNotFound) {
				t.Errorf("%v, want ErrNotFound", err)
			}
		}
		page, err := r.List(r.ctx(), "acme/bob", runs.Filter{})
		if err != nil || len(page.Tasks) > 0 || page.Total != 0 {
			t.Errorf("List = %v, %v", page, err)
		}
	})
	t.Run("A-16 the task follows its events", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		for _, step := range []struct {
			event *teamv1.Event
			state a2av1.TaskState
		}{
			{noted("x"), a2av1.TaskState_TASK_STATE_SUBMITTED},
			{started(""), a2av1.TaskState_TASK_STATE_WORKING},
			{asked("q", r.clock.Now()), a2av1.TaskState_TASK_STATE_WORKING},
			{waiting("q"), a2av1.TaskState_TASK_STATE_INPUT_REQUIRED},
			{succeeded(), a2av1.TaskState_TASK_STATE_COMPLETED},
		} {
			r.append(c, step.event)
			if got := r.state("one"); got != step.state {
				t.Fatalf("%v after %v", got, step.event)
			}
			if st, err := r.Standing(r.ctx(), key("one")); err != nil || st.State != step.state {
				t.Fatalf("Standing = %v, %v after %v", st, err, step.event)
			}
		}
	})
	t.Run("A-16 a task is the reader's own copy", func(t *testing.T) {
		r := newRig(t, open)
		r.create(task("one"))
		got, seq, err := r.Task(r.ctx(), key("one"))
		if err != nil || seq != 1 || got.GetId() != "one" || got.GetContextId() != "c" {
			t.Fatalf("Task = %v, %d, %v", got, seq, err)
		}
		if st, err := r.Standing(r.ctx(), key("one")); err != nil || st != (runs.Standing{Agent: "a", ContextID: "c", State: a2av1.TaskState_TASK_STATE_SUBMITTED}) {
			t.Errorf("Standing = %v, %v", st, err)
		}
		for _, k := range []runs.Key{key("two"), {Owner: "other", ID: "one"}} {
			if st, err := r.Standing(r.ctx(), k); !errors.Is(err, runs.ErrNotFound) {
				t.Errorf("Standing of %v = %v, %v", k, st, err)
			}
		}
		got.Id, got.Status.State = "changed", a2av1.TaskState_TASK_STATE_FAILED
		again, _, err := r.Task(r.ctx(), key("one"))
		if err != nil || again.GetId() != "one" || again.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_SUBMITTED {
			t.Fatalf("Task = %v, %v", again, err)
		}
	})
	t.Run("A-16 a run that may be answered directly is seen when it needs to be", func(t *testing.T) {
		r := newRig(t, open)
		n := task("one")
		n.Accepted.MayReplyDirectly = true
		r.create(n)
		c := r.claim("one")
		r.append(c, started(""))
		if _, _, err := r.Task(r.ctx(), key("one")); !errors.Is(err, runs.ErrNotFound) {
			t.Fatalf("Task: %v, want ErrNotFound", err)
		}
		if page, err := r.List(r.ctx(), me, runs.Filter{}); err != nil || page.Total != 0 || len(page.Tasks) != 0 {
			t.Fatalf("List = %v, %v", page, err)
		}
		if got := r.events("one"); len(got) != 2 { // its sender waits for them
			t.Fatalf("%d events, want 2", len(got))
		}
		r.append(c, progress("working on it"))
		if page, err := r.List(r.ctx(), me, runs.Filter{}); err != nil || page.Total != 1 || len(page.Tasks) != 1 {
			t.Fatalf("List = %v, %v", page, err)
		}
		r.state("one")
	})
	t.Run("A-15 a direct answer stays unseen and is found by a repeated send", func(t *testing.T) {
		r := newRig(t, open)
		n := task("one")
		n.Accepted.MayReplyDirectly = true
		r.create(n)
		end := succeeded()
		end.GetEnded().Direct = true
		r.append(r.claim("one"), started(""), end)
		if _, _, err := r.Task(r.ctx(), key("one")); !errors.Is(err, runs.ErrNotFound) {
			t.Fatalf("Task: %v, want ErrNotFound", err)
		}
		if root, existed, err := r.Create(r.ctx(), n); root != "one" || !existed || err != nil {
			t.Fatalf("Create = %q, %v, %v", root, existed, err)
		}
		if got := r.events("one"); len(got) != 3 || !got[2].GetEnded().GetDirect() {
			t.Fatalf("on record are %v", got)
		}
	})
}

func children(t *testing.T, open Open) {
	r := newRig(t, open)
	c := r.run("one")
	if _, _, err := r.Task(r.ctx(), key("one~1")); !errors.Is(err, runs.ErrNotFound) {
		t.Fatalf("Task of a child that is not there: %v", err)
	}
	if _, _, err := r.Put(r.ctx(), key("one~1"), cancel("c0"), nil, nil); !errors.Is(err, runs.ErrNotFound) {
		t.Fatalf("Put to a child that is not there: %v", err)
	}
	for _, step := range []struct {
		event *teamv1.Event
		state a2av1.TaskState
	}{
		{decided("1"), a2av1.TaskState_TASK_STATE_SUBMITTED},
		{started("1"), a2av1.TaskState_TASK_STATE_WORKING},
		{started("1.1"), a2av1.TaskState_TASK_STATE_WORKING},
		{ended("1.1", teamv1.Outcome_OUTCOME_SUCCEEDED), a2av1.TaskState_TASK_STATE_WORKING},
		{ended("1", teamv1.Outcome_OUTCOME_SUCCEEDED), a2av1.TaskState_TASK_STATE_COMPLETED},
	} {
		r.append(c, step.event)
		if got := r.state("one~1"); got != step.state {
			t.Fatalf("child is %v after %v", got, step.event)
		}
	}
	if got := r.events("one~1"); len(got) != 4 {
		t.Errorf("%d events of the child and below, want 4", len(got))
	}
	if got := r.events("one~1.1"); len(got) != 2 {
		t.Errorf("%d events of the grandchild, want 2", len(got))
	}
	if _, _, err := r.Put(r.ctx(), key("one~1"), cancel("c1"), nil, nil); !errors.Is(err, runs.ErrTerminal) {
		t.Errorf("Put to a child that has ended: %v", err)
	}
	page, err := r.List(r.ctx(), me, runs.Filter{})
	if err != nil || page.Total != 1 || page.Tasks[0].GetId() != "one" {
		t.Errorf("List = %v, %v, want the root alone", page, err)
	}
}

func watches(t *testing.T, open Open) {
	t.Run("A-07 a reader misses nothing and sees nothing twice", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { follow(t, r) })
		}
		for range 1000 {
			r.append(c, progress("x"))
		}
		r.append(c, succeeded())
		wg.Wait()
	})
	t.Run("A-07 a watcher that stopped is not woken", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		wake, stop := r.Watch("one")
		r.append(c, noted("x"))
		<-wake
		stop()
		stop()
		r.append(c, noted("y"))
		select {
		case <-wake:
			t.Fatal("woken")
		default:
		}
	})
	t.Run("A-07 a watcher that came before the task is woken by its events", func(t *testing.T) {
		r := newRig(t, open)
		wake, stop := r.Watch("one")
		defer stop()
		if wake == nil {
			return // the store watches only tasks that exist
		}
		r.append(r.run("one"), noted("x"))
		<-wake
	})
	t.Run("A-07 a task that is not there never wakes", func(t *testing.T) {
		r := newRig(t, open)
		wake, stop := r.Watch("none")
		defer stop()
		select {
		case <-wake:
			t.Fatal("woken")
		default:
		}
	})
}

// follow reads a task and then its events until the end, and checks that the events complete the
// task.
func follow(t *testing.T, r *rig) {
	wake, stop := r.Watch("one")
	defer stop()
	_, seq, err := r.Task(r.ctx(), key("one"))
	if err != nil {
		t.Errorf("Task: %v", err)
		return
	}
	f := project.New("one", "")
	for cursor, done := int64(0), false; !done; {
		page, err := r.Events(r.ctx(), key("one"), cursor, 100)
		if err != nil {
			t.Errorf("Events: %v", err)
			return
		}
		for _, rec := range page {
			if rec.Seq != cursor+1 {
				t.Errorf("event %d after %d", rec.Seq, cursor)
			}
			cursor = rec.Seq
			f.Apply(rec.Event)
			done = rec.Event.GetEnded() != nil
		}
		if len(page) == 0 {
			<-wake
		}
	}
	end, last, err := r.Task(r.ctx(), key("one"))
	if err != nil || last < seq {
		t.Errorf("Task shows %d after %d: %v", last, seq, err)
	}
	if diff := cmp.Diff(end, f.Task(), protocmp.Transform()); diff != "" {
		t.Errorf("the events make another task (-task +events):\n%s", diff)
	}
}
