package storetest

import (
	"slices"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
)

// runs returns the marks of the runs that a filter selects.
func (r *rig) runs(f runs.RunFilter) []runs.RunMark {
	r.Helper()
	marks, err := r.Runs(r.ctx(), me, f)
	if err != nil {
		r.Fatalf("Runs(%+v): %v", f, err)
	}
	for i := range marks {
		marks[i].StatusAt = marks[i].StatusAt.UTC()
	}
	return marks
}

func marked(marks []runs.RunMark) []string {
	out := []string{}
	for _, m := range marks {
		out = append(out, m.Root)
	}
	return out
}

// wakes reports whether a change wakes a watcher each time. A watcher may sometimes
// wake without a change: when a store begins to listen to other replicas.
func wakes(wake <-chan struct{}, change func(i int)) bool {
	for i := range 3 {
		select {
		case <-wake:
		default:
		}
		change(i)
		select {
		case <-wake:
		default:
			return false
		}
	}
	return true
}

func overviews(t *testing.T, open Open) {
	t.Run("R-003-30 who watches an owner's roots is not woken for those of others", func(t *testing.T) {
		r := newRig(t, open)
		wake, stop := r.WatchAll(me)
		defer stop()
		for _, owner := range []string{me, "acme/bob", me + "a", "globex/ann"} {
			woken := wakes(wake, func(i int) {
				n := task(owner + id(i))
				n.Owner = owner
				r.create(n)
				r.append(r.claim(owner+id(i)), started(""), noted("x"), succeeded())
			})
			if want := owner == me; woken != want {
				t.Errorf("for tasks of %s the watcher of %s is woken: %v, want %v", owner, me, woken, want)
			}
		}
	})
	t.Run("R-003-28 roots are shown with how far they have come", func(t *testing.T) {
		r := newRig(t, open)
		begin := r.clock.Now()
		other := task("other")
		other.Accepted.Agent = "b"
		foreign := task("foreign")
		foreign.Owner = "acme/bob"
		r.create(task("one"), task("two"), other, foreign)
		hidden := task("hidden")
		hidden.Accepted.MayReplyDirectly = true
		r.create(hidden)
		claims := map[string]runs.Claim{}
		for _, c := range r.claims() {
			claims[c.Root] = c
		}
		r.clock.Move(time.Second)
		r.append(claims["one"], started(""), noted("x"))
		r.clock.Move(time.Second)
		r.append(claims["two"], started(""), succeeded())
		end := r.clock.Now()
		want := []runs.RunMark{
			{Root: "two", Agent: "a", Seq: 3, State: a2av1.TaskState_TASK_STATE_COMPLETED, StatusAt: end},
			{Root: "one", Agent: "a", Seq: 3, State: a2av1.TaskState_TASK_STATE_WORKING, StatusAt: begin.Add(time.Second)},
			{Root: "other", Agent: "b", Seq: 1, State: a2av1.TaskState_TASK_STATE_SUBMITTED, StatusAt: begin},
		}
		for _, c := range []struct {
			f    runs.RunFilter
			want []runs.RunMark
		}{
			{runs.RunFilter{}, want[1:]},
			{runs.RunFilter{Agent: "a"}, want[1:2]},
			{runs.RunFilter{Agent: "b", Ended: true}, want[2:]},
			{runs.RunFilter{Agent: "c"}, nil},
			{runs.RunFilter{Ended: true}, want},
			{runs.RunFilter{Ended: true, Since: end}, want},
			{runs.RunFilter{Ended: true, Since: end.Add(time.Millisecond)}, want[1:]},
			{runs.RunFilter{Ended: true, Limit: 2}, want[:2]},
			{runs.RunFilter{Limit: 1}, want[1:2]},
		} {
			if got := r.runs(c.f); !slices.Equal(got, c.want) {
				t.Errorf("Runs(%+v) = %v, want %v", c.f, got, c.want)
			}
		}
		r.append(claims["hidden"], started(""), progress("it is seen now"))
		if got := marked(r.runs(runs.RunFilter{Agent: "a"})); !slices.Contains(got, "hidden") {
			t.Errorf("Runs = %v, without the run that is seen now", got)
		}
		if marks, err := r.Runs(r.ctx(), "other/user", runs.RunFilter{Ended: true}); err != nil || len(marks) > 0 {
			t.Errorf("Runs of another account = %v, %v", marks, err)
		}
	})
	t.Run("R-003-30 who watches an owner's roots hears of each", func(t *testing.T) {
		r := newRig(t, open)
		wake, stop := r.WatchAll(me)
		hear := func(what string) {
			t.Helper()
			select {
			case <-wake:
			case <-time.After(10 * time.Second):
				t.Fatal("no watcher was told of " + what)
			}
		}
		r.create(task("one"))
		hear("a new root")
		c := r.claim("one")
		for _, ev := range []*teamv1.Event{started(""), noted("x"), succeeded()} {
			r.append(c, ev)
			hear("an event")
		}
		stop()
		r.create(task("two"))
		select {
		case <-wake:
			t.Error("who has stopped is told")
		default:
		}
	})
}
