package remote_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/pkg/agent"
)

func eachWay(t *testing.T, test func(t *testing.T, w way)) {
	t.Helper()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) { test(t, w) })
	}
}

func asError(t *testing.T, err error) *agent.Error {
	t.Helper()
	var e *agent.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v is no *agent.Error", err)
	}
	return e
}

func TestS_56_QuestionOfARemoteMember(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		f, a := w.start(t, func(c *fakeagent.Config) {
			c.Turns = []fakeagent.Turn{{Progress: "reading", Ask: "which colour?"}, {Ask: "which size?"}, {Text: "a large red one"}}
		})
		j := newJournal("paint")
		for i, q := range []string{"which colour?", "which size?"} {
			if err := j.play(t.Context(), a); err != nil || j.reply != nil {
				t.Fatalf("reply %v, error %v; want a question", j.reply, err)
			}
			asked := last(j, (*teamv1.Event).GetAsked)
			if text := agent.Text(asked.GetMessage()); text != q || !strings.HasPrefix(asked.GetQuestion(), "2.1.") {
				t.Errorf("asked %q as %q, want %q in our scope", text, asked.GetQuestion(), q)
			}
			if asked.GetMessage().GetTaskId() != "" {
				t.Errorf("the question names the peer's task")
			}
			j.answer([]string{"red", "large"}[i])
		}
		if err := j.play(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if text := agent.Text(j.reply.GetMessage()); text != "a large red one" {
			t.Errorf("reply %q", text)
		}
		if f.Played() != 3 {
			t.Errorf("%d turns played, want 3", f.Played())
		}
	})
}

// TestS_56_AnAnswerIsNotGivenTwice: not to an A2A peer that would take it as
// another one, once that has taken it; and not to one that knows a message that
// comes again, whenever the crash comes.
func TestS_56_AnAnswerIsNotGivenTwice(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		t.Run("taken", func(t *testing.T) {
			answerTwice(t, w, w.a2a, func(f *fakeagent.Agent) { awaitPlayed(t, f, 2) })
		})
		t.Run("on its way", func(t *testing.T) {
			answerTwice(t, w, false, func(*fakeagent.Agent) {})
		})
	})
}

// answerTwice answers a question, and again after a crash when the peer has got
// the answer and until has returned.
func answerTwice(t *testing.T, w way, forgetful bool, until func(*fakeagent.Agent)) {
	t.Helper()
	gate := make(chan struct{})
	f, a := w.start(t, func(c *fakeagent.Config) {
		c.Turns = []fakeagent.Turn{{Ask: "which colour?"}, {Progress: "painting", Gate: gate, Text: "done"}}
		c.Forgetful = forgetful
	})
	j := newJournal("paint")
	if err := j.play(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	j.answer("red")
	crash, stop := context.WithCancelCause(t.Context())
	before := len(f.Requests(w.first))
	ended := make(chan error)
	recorded := j.recorded
	go func() { ended <- j.play(crash, a) }()
	f.Await(t, w.first, before+1)
	until(f)
	stop(agent.ErrShutdown)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	close(gate)
	j.recorded = recorded // all that came after the answer is lost
	if err := j.play(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if text := agent.Text(j.reply.GetMessage()); text != "done" || f.Played() != 2 {
		t.Errorf("reply %q after %d turns, want 2", text, f.Played())
	}
}

// awaitPlayed waits until the peer has taken so many messages: it notes a request
// before it takes what is in it.
func awaitPlayed(t *testing.T, f *fakeagent.Agent, n int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for f.Played() < n {
		if time.Now().After(deadline) {
			t.Fatalf("%d turns played, want %d", f.Played(), n)
		}
		runtime.Gosched()
	}
}

func TestR_000_27_FailureOfARemoteMember(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		_, a := w.start(t, func(c *fakeagent.Config) { c.Default = fakeagent.Turn{Progress: "trying", Fail: "the paint is out"} })
		e := asError(t, newJournal("paint").play(t.Context(), a))
		if !strings.Contains(e.Message, "the paint is out") || !e.Fresh {
			t.Errorf("error %+v", e)
		}
		if !w.a2a && (e.Reason != agent.ReasonTeamError || e.Code != agent.CodeInternal) {
			t.Errorf("reason %s, code %d of the member's own error are lost", e.Reason, e.Code)
		}
	})
}

func TestRefusals(t *testing.T) {
	tests := []struct {
		code         codes.Code
		retry, fresh bool
	}{
		{codes.Unavailable, true, false},
		{codes.DeadlineExceeded, true, false},
		{codes.ResourceExhausted, true, true},
		{codes.InvalidArgument, false, true},
		{codes.Unauthenticated, false, true},
		{codes.Internal, true, false},
	}
	eachWay(t, func(t *testing.T, w way) {
		for _, tt := range tests {
			_, a := w.start(t, func(c *fakeagent.Config) { c.Default.Refuse = status.Error(tt.code, "no") })
			e := asError(t, newJournal("hello").play(t.Context(), a))
			if e.Retry != tt.retry || e.Fresh != tt.fresh {
				t.Errorf("%v: retry %v, fresh %v; want %v, %v", tt.code, e.Retry, e.Fresh, tt.retry, tt.fresh)
			}
		}
	})
}

func TestS_56_PeerThatIsDown(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		f, a := w.start(t, nil)
		f.Down()
		e := asError(t, newJournal("hello").play(t.Context(), a))
		if e.Reason != agent.ReasonUnavailable || !e.Retry || e.Fresh || strings.Contains(e.Message, "127.0.0.1") {
			t.Errorf("error %+v", e)
		}
	})
}

func TestS_56_BrokenStreamIsTakenUpAgain(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		if w.unary || w.cfg.NoStream {
			t.Skip("no stream")
		}
		f, a := w.start(t, func(c *fakeagent.Config) {
			c.Default = chatty()
			c.Default.Break = 3
			c.Forgetful = w.a2a
		})
		j := newJournal("hello")
		err := j.play(t.Context(), a)
		for range 3 {
			if err == nil {
				break
			}
			if e := asError(t, err); !e.Retry || e.Fresh {
				t.Fatalf("error %+v", e)
			}
			err = j.play(t.Context(), a)
		}
		if err != nil || f.Played() != 1 {
			t.Fatalf("error %v, %d turns played, want 1", err, f.Played())
		}
		if text := agent.Text(j.reply.GetMessage()); text != "one two three" || j.streamedText() != text {
			t.Errorf("reply %q, streamed %q", text, j.streamedText())
		}
	})
}

func TestBoundIsDurableBeforeAnythingElse(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		if w.unary {
			t.Skip("the task is known at the end only")
		}
		_, a := w.start(t, func(c *fakeagent.Config) { c.Default = chatty() })
		j := newJournal("hello")
		if err := j.play(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		b := j.recorded[0].GetBound()
		if b.GetTaskId() == "" || b.GetPeer() == "" || j.commits < 1 {
			t.Errorf("first event %v, %d events committed", j.recorded[0], j.commits)
		}
	})
}

// TestWhatCrossesTheWire: what was recorded here, and our ids, do not; depth does.
func TestWhatCrossesTheWire(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		f, a := w.start(t, nil)
		j := newJournal("hello")
		j.req.ContextId = "shared-context"
		if err := j.play(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		r := f.Requests(w.first)[0]
		if got := r.Header["team-path"]; len(got) != 1 || got[0] != "2" {
			t.Errorf("R-000-36: team-path %v, want 2", got)
		}
		var m *a2av1.Message
		switch body := r.Body.(type) {
		case *teamv1.ProcessStreamRequest:
			m = checkRequest(t, body.GetRequest())
		case *teamv1.ProcessRequest:
			m = checkRequest(t, body)
		case *a2av1.SendMessageRequest:
			m = body.GetMessage()
			version := "1.0"
			if w.cfg.Old {
				version = "0.3"
			}
			if got := r.Header["a2a-version"]; len(got) != 1 || got[0] != version || body.GetTenant() != w.cfg.Tenant {
				t.Errorf("version %v, tenant %q", got, body.GetTenant())
			}
		}
		if m.GetMessageId() != "key-1" || m.GetTaskId() != "" || m.GetContextId() != "" || m.GetRole() != a2av1.Role_ROLE_USER {
			t.Errorf("message %v", m)
		}
	})
}

func checkRequest(t *testing.T, req *teamv1.ProcessRequest) *a2av1.Message {
	t.Helper()
	if req.GetScope() != "" || req.GetRecorded() != nil || req.GetKey() != "key-1" || req.GetDepth() != 2 || req.GetContextId() != "shared-context" {
		t.Errorf("request %v", req)
	}
	return req.GetMessage()
}
