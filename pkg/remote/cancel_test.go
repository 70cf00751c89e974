package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/remote"
)

func TestS_24_CancelReachesThePeer(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		f, a := w.start(t, func(c *fakeagent.Config) { c.Default = fakeagent.Turn{Progress: "working", Gate: make(chan struct{})} })
		e := cancelDuring(t, w, f, a, nil)
		wantEntry(t, e, true)
		if len(f.Requests(w.cancel)) == 0 {
			t.Error("the peer got no cancel")
		}
	})
}

// cancelDuring cancels a call that has reached the peer; then is called after.
func cancelDuring(t *testing.T, w way, f *fakeagent.Agent, a agent.Agent, then func()) *agent.Error {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	ended := make(chan error)
	go func() { ended <- newJournal("hello").play(ctx, a) }()
	f.Await(t, w.first, 1)
	cancel(agent.ErrCanceled)
	if then != nil {
		then()
	}
	err := <-ended
	if !errors.Is(err, agent.ErrCanceled) {
		t.Fatalf("error %v", err)
	}
	return asError(t, err)
}

// wantEntry wants the error of a canceled call that says what became of the
// peer's task.
func wantEntry(t *testing.T, e *agent.Error, confirmed bool) *teamv1.Receipt_Entry {
	t.Helper()
	entries := e.Receipt.GetEntries()
	if !errors.Is(e, agent.ErrCanceled) || len(entries) != 1 {
		t.Fatalf("error %+v, receipt %v", e, e.Receipt)
	}
	got := entries[0]
	if got.GetConfirmed() != confirmed || got.GetUnconfirmed() == confirmed || got.GetScope() != "2.1" || got.GetLastAction() == "" {
		t.Errorf("receipt %v", got)
	}
	return got
}

func TestS_24_CancelBeforeTheTaskIsKnown(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		before := make(chan struct{})
		f, a := w.start(t, func(c *fakeagent.Config) {
			c.Default = fakeagent.Turn{Before: before, Progress: "working", Gate: make(chan struct{})}
		})
		e := cancelDuring(t, w, f, a, func() { close(before) })
		if got := f.Requests(w.cancel); len(got) == 0 {
			t.Error("the peer got no cancel")
		}
		got := wantEntry(t, e, true)
		if !w.unary && got.GetRemoteTaskId() == "" {
			t.Errorf("the receipt does not name the task: %v", got)
		}
	})
}

// startWithin starts a fake agent whose cancels have a short time.
func (w way) startWithin(t *testing.T, wait time.Duration, turn fakeagent.Turn) (*fakeagent.Agent, agent.Agent) {
	t.Helper()
	cfg := w.cfg
	cfg.Default = turn
	f := fakeagent.New(t, cfg)
	if w.a2a {
		return f, newA2A(t, f, func(c *remote.A2AConfig) { c.CancelWait = wait })
	}
	a, err := remote.New(remote.Config{ID: "far", Address: f.GRPC(), CancelEvery: 5 * time.Millisecond, CancelWait: wait})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return f, a
}

// canceledCall is how a canceled call ended: its receipt, and how many cancels the
// peer got.
type canceledCall struct {
	receipt *teamv1.Receipt_Entry
	cancels int
}

// cancelWithin cancels a call with a short CancelWait, and with longer ones until done
// reports that the peer was asked: a slow machine needs more than the first to ask once.
func (w way) cancelWithin(t *testing.T, turn func() fakeagent.Turn, done func(canceledCall) bool) {
	t.Helper()
	for wait := 100 * time.Millisecond; ; wait *= 4 {
		f, a := w.startWithin(t, wait, turn())
		receipt := wantEntry(t, cancelDuring(t, w, f, a, nil), false)
		got := canceledCall{receipt: receipt, cancels: len(f.Requests(w.cancel))}
		if done(got) {
			return
		}
		if wait > 5*time.Second {
			t.Fatalf("after %s: receipt %v, %d cancels", wait, receipt, got.cancels)
		}
	}
}

// A peer takes the cancel and goes on: it is asked until the time is up.
func TestS_24_PeerThatNeverConfirms(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		w.cancelWithin(t, func() fakeagent.Turn {
			return fakeagent.Turn{Progress: "working", Gate: make(chan struct{}), Deaf: true}
		}, func(s canceledCall) bool {
			return s.cancels > 0 && (w.unary || s.receipt.GetRemoteTaskId() != "")
		})
	})
}

// A peer never names its task: there is nothing to cancel but the key.
func TestS_24_PeerThatNeverNamesItsTask(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		w.cancelWithin(t, func() fakeagent.Turn {
			return fakeagent.Turn{Before: make(chan struct{})}
		}, func(s canceledCall) bool {
			if s.receipt.GetRemoteTaskId() != "" || w.a2a && s.cancels > 0 {
				t.Fatalf("receipt %v, %d cancels", s.receipt, s.cancels)
			}
			return w.a2a || s.cancels > 0
		})
	})
}

// The cancel comes right before the message is sent: it is not sent any more.
func TestS_24_NothingIsSentAfterTheCancel(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		f, a := w.start(t, nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		j := newJournal("hello")
		j.run.Committer = func(context.Context) error {
			cancel(agent.ErrCanceled)
			return nil
		}
		err := j.play(ctx, a)
		if !errors.Is(err, agent.ErrCanceled) || agent.AsError(err).Receipt != nil {
			t.Errorf("error %v, receipt %v", err, agent.AsError(err).Receipt)
		}
		if n := len(f.Requests(w.first)) + len(f.Requests(w.cancel)); n > 0 {
			t.Errorf("%d calls of the peer", n)
		}
	})
}

// The cancel comes while the Bound is made durable: the peer gets it all the same.
func TestS_24_CancelWhileTheTaskIsRecorded(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		if w.unary {
			t.Skip("no task is known")
		}
		f, a := w.start(t, func(c *fakeagent.Config) { c.Default = fakeagent.Turn{Progress: "working", Gate: make(chan struct{})} })
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		j := newJournal("hello")
		j.run.Committer = func(context.Context) error {
			if len(j.recorded) > 0 {
				cancel(agent.ErrCanceled)
			}
			return context.Cause(ctx)
		}
		got := wantEntry(t, asError(t, j.play(ctx, a)), true)
		if got.GetRemoteTaskId() != j.recorded[0].GetBound().GetTaskId() || len(f.Requests(w.cancel)) == 0 {
			t.Errorf("receipt %v, %d cancels", got, len(f.Requests(w.cancel)))
		}
	})
}

// A call whose time ran out tells the peer, and does not wait for what it makes of it.
func TestS_24_TimeoutTellsThePeer(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		f, a := w.startWithin(t, time.Hour, fakeagent.Turn{Progress: "working", Gate: make(chan struct{}), Deaf: true})
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		ended := make(chan error)
		go func() { ended <- newJournal("hello").play(ctx, a) }()
		f.Await(t, w.first, 1)
		cancel(agent.ErrTimeout)
		if err := <-ended; !errors.Is(err, agent.ErrTimeout) {
			t.Errorf("error %v", err)
		}
		if len(f.Requests(w.cancel)) != 1 {
			t.Errorf("%d cancels", len(f.Requests(w.cancel)))
		}
	})
}

// A shutdown, or another owner, is no reason to end the peer's task.
func TestS_24_ShutdownLeavesThePeerAlone(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for _, cause := range []error{agent.ErrShutdown, agent.ErrFenced} {
			f, a := w.start(t, func(c *fakeagent.Config) { c.Default = fakeagent.Turn{Progress: "working", Gate: make(chan struct{})} })
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := make(chan error)
			go func() { ended <- newJournal("hello").play(ctx, a) }()
			f.Await(t, w.first, 1)
			cancel(cause)
			if err := <-ended; err != nil || len(f.Requests(w.cancel)) > 0 {
				t.Errorf("%v: error %v, %d cancels", cause, err, len(f.Requests(w.cancel)))
			}
		}
	})
}

// A process died before the peer's task was on record: over our Agent service it
// is ended by its key; over A2A nobody knows, and the receipt says so.
func TestS_24_Reap(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		f, a := w.start(t, func(c *fakeagent.Config) { c.Default = fakeagent.Turn{Progress: "working", Gate: make(chan struct{})} })
		j := newJournal("hello")
		ctx, crash := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() { ended <- j.play(ctx, a) }()
		awaitPlayed(t, f, 1)
		crash(agent.ErrShutdown)
		<-ended
		j.req.Recorded = nil
		reaper, ok := a.(agent.Reaper)
		if !ok {
			t.Fatal("no Reaper")
		}
		sent := len(f.Requests(w.first))
		err := reaper.Reap(agent.With(t.Context(), j.run), j.req)
		wantEntry(t, asError(t, err), !w.a2a)
		if len(f.Requests(w.first)) != sent {
			t.Error("a message was sent")
		}
		if w.a2a {
			return
		}
		j.req.Key = "never-sent"
		if err := reaper.Reap(agent.With(t.Context(), j.run), j.req); !errors.Is(err, agent.ErrCanceled) || agent.AsError(err).Receipt != nil {
			t.Errorf("error %v for what was never sent", err)
		}
	})
}

func TestS_24_PeerThatDoesNotCancel(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		if w.unary {
			t.Skip("no task is known")
		}
		f, a := w.start(t, func(c *fakeagent.Config) {
			c.NoCancel = true
			c.Default = fakeagent.Turn{Progress: "working", Gate: make(chan struct{})}
		})
		wantEntry(t, cancelDuring(t, w, f, a, nil), false)
	})
}

// TestS_24_CancelAfterACrash: the new owner calls once, with the context ended
// and the Bound on record, so that the peer's task ends.
func TestS_24_CancelAfterACrash(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		if w.unary {
			t.Skip("no task is known")
		}
		f, a := w.start(t, func(c *fakeagent.Config) { c.Default = fakeagent.Turn{Ask: "which?"} })
		j := newJournal("hello")
		if err := j.play(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		sent := len(f.Requests(w.first))
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(agent.ErrCanceled)
		wantEntry(t, asError(t, j.play(ctx, a)), true)
		if len(f.Requests(w.cancel)) == 0 || len(f.Requests(w.first)) != sent {
			t.Errorf("%d cancels, %d messages", len(f.Requests(w.cancel)), len(f.Requests(w.first))-sent)
		}
	})
}

// TestRefusedStreamIsCanceled: a peer whose answer is not accepted does not go on with its task.
func TestRefusedStreamIsCanceled(t *testing.T) {
	const task = `{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}`
	large := `{"artifactUpdate":{"taskId":"t","contextId":"c","append":true,"artifact":{"artifactId":"a","parts":[{"text":"` + strings.Repeat("x", 6<<20) + `"}]}}}`
	for name, tt := range map[string]struct {
		events []string
		cancel bool
	}{
		"more than is accepted":    {[]string{task, large, large, large}, true},
		"an event that is no JSON": {[]string{task, `{"statusUpdate":`}, true},
		"an odd field":             {[]string{task, `{"statusUpdate":{"taskId":7}}`}, true},
		"before the task is known": {[]string{`{"task":{"id":7}}`}, false},
		"after its end":            {[]string{`{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_FAILED"}}}`}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var canceled atomic.Int32
			a := serveCard(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.HasSuffix(r.URL.Path, ".json"):
					_, _ = fmt.Fprintf(w, `{"name":"x","capabilities":{"streaming":true},"supportedInterfaces":[{"url":"http://%s","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"}]}`, r.Host)
				case strings.HasSuffix(r.URL.Path, "/tasks/t:cancel"):
					canceled.Add(1)
					_, _ = io.WriteString(w, `{"id":"t","contextId":"c","status":{"state":"TASK_STATE_CANCELED"}}`)
				default:
					_, _ = io.Copy(io.Discard, r.Body) // only then the end of the connection is noticed
					w.Header().Set("Content-Type", wire.TypeSSE)
					for _, event := range tt.events {
						_, _ = io.WriteString(w, "data: "+event+"\n\n")
					}
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				}
			})
			if err := newJournal("hello").play(t.Context(), a); err == nil {
				t.Fatal("the answer is accepted")
			}
			if got := canceled.Load(); got != map[bool]int32{true: 1, false: 0}[tt.cancel] {
				t.Errorf("%d cancels, want %v", got, tt.cancel)
			}
		})
	}
}

// TestConsumerThatStopsCancels: a call whose consumer stops because a halt or a limit has ended it cancels the peer's
// task, and one that is continued later does not.
func TestConsumerThatStopsCancels(t *testing.T) {
	halted := agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonHalted, "halted")
	halted.Err = agent.ErrCanceled
	for name, tt := range map[string]struct {
		cause  error
		cancel bool
	}{
		"halt":          {halted, true},
		"journal limit": {agent.Errorf(agent.CodeResourceExhausted, agent.ReasonJournalLimit, "full"), true},
		"shutdown":      {agent.ErrShutdown, false},
		"fenced":        {agent.ErrFenced, false},
	} {
		t.Run(name, func(t *testing.T) {
			eachStream(t, func(t *testing.T, w way) {
				gate := make(chan struct{})
				f, a := w.start(t, func(c *fakeagent.Config) { c.Default = fakeagent.Turn{Progress: "working", Gate: gate} })
				t.Cleanup(func() { close(gate) })
				ctx, stop := context.WithCancelCause(t.Context())
				defer stop(nil)
				j := newJournal("hello")
				for e, err := range a.Process(agent.With(ctx, j.run), j.req) {
					if err != nil {
						t.Fatal(err)
					}
					if e.GetProgress() != nil || e.GetBound() != nil {
						stop(tt.cause)
						break
					}
				}
				if got := len(f.Requests(w.cancel)) > 0; got != tt.cancel {
					t.Errorf("canceled %v, want %v", got, tt.cancel)
				}
			})
		})
	}
}
