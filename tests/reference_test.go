package tests

import (
	"crypto/rand"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

// referring is a message about tasks that have ended.
func referring(req *a2av1.SendMessageRequest, ids ...string) *a2av1.SendMessageRequest {
	req.Message.ReferenceTaskIds = ids
	return req
}

// TestA_24_T_5_References: what a task was about that a message refers to is part of
// what its agent is told.
func TestA_24_T_5_References(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		l := live(t, at, rig.Manager(t, newTalker(t, llm, true)))
		c := l.clients[0]
		one, two := say(t, c, "talker", "one", "tides"), say(t, c, "talker", "two", "moons")
		t.Run("A-24 tasks of other contexts come before the message, in the order of the references", func(t *testing.T) {
			for _, c := range l.clients {
				send(t, c, referring(rig.Text("talker", rand.Text(), "compare"), two.GetId(), one.GetId(), two.GetId()))
				want := append(turn("moons"), turn("tides")...)
				wantPrompt(t, llm, "m", append(want, "user: compare")...)
			}
		})
		t.Run("A-24 behind what is remembered of the conversation, which is not told twice", func(t *testing.T) {
			send(t, c, in("one", referring(rig.Text("talker", rand.Text(), "again"), one.GetId(), two.GetId())))
			want := append(turn("tides"), turn("moons")...)
			wantPrompt(t, llm, "m", append(want, "user: again")...)
			say(t, c, "talker", "one", "later")
			want = append(turn("tides"), turn("again")...)
			wantPrompt(t, llm, "m", append(want, "user: later")...)
		})
		t.Run("A-21 a task that is not there begins nothing", func(t *testing.T) {
			before := len(llm.Requests("m"))
			_, err := c.Send(t.Context(), referring(rig.Text("talker", rand.Text(), "x"), "nobody-s"))
			if f := rig.Fault(err); f == nil || f.Reason != "TASK_NOT_FOUND" || len(llm.Requests("m")) != before {
				t.Error(err)
			}
		})
		t.Run("A-21 nor of a message to a task", func(t *testing.T) {
			for id, want := range map[string]string{"nobody-s": "TASK_NOT_FOUND", two.GetId(): "UNSUPPORTED_OPERATION"} { // the task has ended
				req := referring(rig.Text("", rand.Text(), "x"), id)
				req.Message.TaskId = one.GetId()
				_, err := c.Send(t.Context(), req)
				if f := rig.Fault(err); f == nil || f.Reason != want {
					t.Errorf("%s: %v", id, err)
				}
			}
		})
	})
}
