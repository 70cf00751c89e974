package a2a_test

import (
	"iter"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/feed"
)

// The update with which a stream ends says so, and no other: where the task has
// ended, and where it asks for input; not where it wants authentication, nor in the
// first thing a reader is told.
func TestA_25_LastOfAStream(t *testing.T) {
	r := start(t, echo("echo"), script(t, "ask", ask("who?"), ask("where?")), authAgent{id: "auth"})
	t.Run("a task that ends", func(t *testing.T) { lastOnly(t, r.stream(t, message("echo", "hi")), completed) })
	t.Run("a task that asks, and asks again", func(t *testing.T) {
		task := lastOnly(t, r.stream(t, message("ask", "x")), inputRequired)
		watching := r.subscribe(t, task, 0)
		lastOnly(t, r.stream(t, reply(task, "me")), inputRequired)
		lastOnly(t, watching, inputRequired)
		lastOnly(t, r.stream(t, reply(task, "here")), completed)
	})
	t.Run("a task that wants authentication", func(t *testing.T) {
		var id string
		lastOnly(t, func(yield func(feed.Update, error) bool) {
			for u, err := range r.stream(t, message("auth", "x")) {
				if u.Response.GetTask() != nil {
					id = u.Response.GetTask().GetId()
				}
				if u.Response.GetStatusUpdate().GetStatus().GetState() == a2av1.TaskState_TASK_STATE_AUTH_REQUIRED {
					r.send(t, ann(t), atOnce(reply(id, "logged in")))
				}
				if !yield(u, err) {
					return
				}
			}
		}, completed)
	})
}

// lastOnly reads a stream to its end and returns its task.
func lastOnly(t *testing.T, updates iter.Seq2[feed.Update, error], state a2av1.TaskState) (task string) {
	t.Helper()
	var last feed.Update
	n := 0
	for u, err := range updates {
		if err != nil {
			t.Fatal(err)
		}
		if last.Last {
			t.Errorf("after the last update came %v", u.Response)
		}
		if u.Response.GetTask() != nil {
			task = u.Response.GetTask().GetId()
		}
		last = u
		n++
	}
	if got := last.Response.GetTask(); n == 1 && got.GetStatus().GetState() == state {
		return task // it had come to that before anybody looked
	}
	if got := last.Response.GetStatusUpdate().GetStatus().GetState(); !last.Last || got != state {
		t.Errorf("the last of %d updates is %v (last: %v), want state %v", n, last.Response, last.Last, state)
	}
	return task
}
