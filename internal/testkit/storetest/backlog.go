package storetest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
)

func backlogs(t *testing.T, open Open) {
	t.Run("T-44 what waits is counted, of all owners, with the oldest", func(t *testing.T) {
		r := newRig(t, open)
		want := engine.Backlog{Open: map[a2av1.TaskState]engine.Waiting{}, Due: map[string]engine.Waiting{}, Claimed: map[string]int64{}}
		check := func(when string) {
			t.Helper()
			got, err := r.Backlog(r.ctx())
			if err != nil {
				t.Fatal(err)
			}
			for state, w := range got.Open {
				w.Oldest = w.Oldest.Truncate(time.Millisecond).UTC()
				got.Open[state] = w
			}
			for owner, w := range got.Due {
				w.Oldest = w.Oldest.UTC()
				got.Due[owner] = w
			}
			got.Push.Oldest = got.Push.Oldest.UTC()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", when, diff)
			}
		}
		check("without tasks")
		since := func() time.Time { return r.clock.Now().Truncate(time.Millisecond).UTC() }

		first := since()
		foreign := task("foreign")
		foreign.Owner = "globex/eve"
		r.create(task("one"))
		r.clock.Move(time.Second)
		r.create(foreign)
		want.Due = map[string]engine.Waiting{me: {Count: 1, Oldest: first}, foreign.Owner: {Count: 1, Oldest: first.Add(time.Second)}}
		want.Open[a2av1.TaskState_TASK_STATE_SUBMITTED] = engine.Waiting{Count: 2, Oldest: first}
		check("with two tasks that are due")

		r.clock.Move(time.Second)
		claims := map[string]runs.Claim{}
		for _, c := range r.claims() {
			claims[c.Root] = c
		}
		want.Due, want.Claimed = map[string]engine.Waiting{}, map[string]int64{me: 1, foreign.Owner: 1}
		check("with two claims")

		asking := since()
		r.append(claims["one"], started(""), asked("q", time.Time{}), waiting("q"))
		r.park(claims["one"], runs.Park{})
		delete(want.Claimed, me)
		want.Open = map[a2av1.TaskState]engine.Waiting{
			a2av1.TaskState_TASK_STATE_SUBMITTED: {Count: 1, Oldest: first.Add(time.Second)}, a2av1.TaskState_TASK_STATE_INPUT_REQUIRED: {Count: 1, Oldest: asking},
		}
		check("with a question")

		r.clock.Move(time.Second)
		want.Push = engine.Waiting{Count: 1, Oldest: since()}
		r.putPush("one", "hook", 0)
		r.clock.Move(time.Second)
		check("with a notification that is due")
		c := r.claimPush("hook")
		want.Push = engine.Waiting{}
		check("with a notification that is sent")
		want.Push = engine.Waiting{Count: 1, Oldest: since()}
		failed := runs.PushState{Tries: 1, Since: since()}
		r.settle(c, runs.PushStep{PushState: failed, Then: runs.PushDue, At: since().Add(time.Minute)})
		r.clock.Move(time.Second)
		check("with a notification that has failed and is not due yet")
		r.clock.Move(time.Minute)
		c = r.claimPush("hook")
		check("with a notification that is sent again")
		r.idle(c, 100)
		want.Push = engine.Waiting{}
		check("with a notification that was delivered")

		r.append(claims["foreign"], started(""), succeeded())
		r.park(claims["foreign"], runs.Park{Done: true})
		delete(want.Open, a2av1.TaskState_TASK_STATE_SUBMITTED)
		delete(want.Claimed, foreign.Owner)
		check("with an end")
	})
}
