package remote_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/remote"
)

// limited starts a fake agent that may be silent for a time.
func (w way) limited(t *testing.T, turn fakeagent.Turn, silence time.Duration) (*fakeagent.Agent, agent.Agent) {
	t.Helper()
	cfg := w.cfg
	cfg.Default = turn
	f := fakeagent.New(t, cfg)
	if w.a2a {
		return f, newA2A(t, f, func(c *remote.A2AConfig) { c.IdleTimeout = silence })
	}
	a, err := remote.New(remote.Config{ID: "far", Address: f.GRPC(), CancelEvery: 10 * time.Millisecond, CancelWait: 2 * time.Second, IdleTimeout: silence})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return f, a
}

// TestSilentPeer: a peer that says that it works and then nothing new has failed; its task is canceled
// there, so that the next attempt begins another one.
func TestSilentPeer(t *testing.T) {
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			f, a := w.limited(t, fakeagent.Turn{Progress: "working", Gate: make(chan struct{})}, 150*time.Millisecond)
			began := time.Now()
			err := newJournal("hello").play(t.Context(), a)
			e := agent.AsError(err)
			if e == nil || e.Reason != agent.ReasonUnavailable || !e.Retry || !e.Fresh || !strings.Contains(e.Message, `agent "far" sent nothing for 150ms (idle_timeout)`) {
				t.Fatalf("error %#v", err)
			}
			if d := time.Since(began); d < 150*time.Millisecond {
				t.Errorf("it took only %v", d)
			}
			if n := len(f.Requests(w.cancel)); n == 0 {
				t.Error("the task of the peer was not canceled")
			}
		})
	}
}

// TestPeerThatIsNeverSilentForLong: a peer may take longer than the limit if it says something new now
// and then.
func TestPeerThatIsNeverSilentForLong(t *testing.T) {
	for _, w := range ways() {
		if w.unary || strings.Contains(w.name, "polled") {
			continue // nothing shows until the end
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			before, gate := make(chan struct{}), make(chan struct{})
			f, a := w.limited(t, fakeagent.Turn{Before: before, Progress: "working", Gate: gate, Text: "done"}, time.Second)
			go func() {
				<-time.After(600 * time.Millisecond)
				close(before)
				<-time.After(600 * time.Millisecond)
				close(gate)
			}()
			j := newJournal("hello")
			if err := j.play(t.Context(), a); err != nil || agent.Text(j.reply.GetMessage()) != "done" || f.Played() != 1 {
				t.Errorf("reply %v, error %v", j.reply, err)
			}
		})
	}
}

// TestKeepAliveIsNoNews: comments in a stream of server-sent events do not count, and a peer that does
// not answer at all is not waited for.
func TestKeepAliveIsNoNews(t *testing.T) {
	stop := make(chan struct{})
	srv := httptest.NewServer(nil)
	srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "agent-card.json") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"name":"far","description":"x","version":"1","supportedInterfaces":[{"url":%q,"protocolBinding":"HTTP+JSON","protocolVersion":"1.0"}],"capabilities":{"streaming":true},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[]}`, srv.URL)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			_, _ = w.Write([]byte(": keep-alive\n\n"))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(10 * time.Millisecond):
			case <-r.Context().Done():
				return
			case <-stop:
				return
			}
		}
	})
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(stop) })
	a, err := remote.NewA2A(remote.A2AConfig{ID: "far", Card: srv.URL, IdleTimeout: 200 * time.Millisecond, CancelWait: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	err = newJournal("hello").play(t.Context(), a)
	if e := agent.AsError(err); e == nil || e.Reason != agent.ReasonUnavailable || !e.Retry || e.Fresh {
		t.Errorf("error %#v", err) // it is not known whether the peer has begun a task
	}
}

// TestSilentPeerThatConfirmsLate: a peer ends its task only after the cancel was given up. The next
// attempt finds it canceled and is repeated with another task.
func TestSilentPeerThatConfirmsLate(t *testing.T) {
	for _, w := range ways() {
		if w.unary {
			continue // the test does not learn the id of its task
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			w.cfg.NoCancel = true
			f, a := w.limited(t, fakeagent.Turn{Progress: "working", Gate: make(chan struct{})}, 150*time.Millisecond)
			j := newJournal("hello")
			if e := agent.AsError(j.play(t.Context(), a)); e == nil || !e.Retry || e.Fresh {
				t.Fatalf("error %#v", e)
			}
			b := last(j, (*teamv1.Event).GetBound)
			if !b.GetSilent() {
				t.Fatalf("the cancel is not on record: %v", b)
			}
			if err := f.Cancel(t.Context(), b.GetTaskId()); err != nil {
				t.Fatal(err)
			}
			e := agent.AsError(j.play(t.Context(), a))
			if e == nil || e.Reason != agent.ReasonUnavailable || !e.Retry || !e.Fresh || !strings.Contains(e.Message, "its task has been canceled") {
				t.Errorf("error %#v", e)
			}
		})
	}
}

// TestFirstReadIsNoNews: reading a task for the first time does not prolong the silence.
func TestFirstReadIsNoNews(t *testing.T) {
	f := fakeagent.New(t, fakeagent.Config{Bindings: []string{remote.BindingREST}, NoStream: true, Default: fakeagent.Turn{Progress: "working", Gate: make(chan struct{})}})
	const limit = 2 * time.Second
	a := newA2A(t, f, func(c *remote.A2AConfig) { c.IdleTimeout, c.PollEvery = limit, time.Minute })
	began := time.Now()
	if e := agent.AsError(newJournal("hello").play(t.Context(), a)); e == nil || !strings.Contains(e.Message, "idle_timeout") {
		t.Errorf("error %#v", e)
	}
	if d := time.Since(began); d < limit || d > limit*14/10 {
		t.Errorf("it took %v, want %v", d, limit)
	}
}

// replaying is a peer without a journal: each stream begins with the same events.
type replaying struct {
	teamv1.UnimplementedAgentServiceServer
	streams atomic.Int32
}

func (r *replaying) ProcessStream(_ *teamv1.ProcessStreamRequest, s grpc.ServerStreamingServer[teamv1.ProcessStreamResponse]) error {
	r.streams.Add(1)
	for _, text := range []string{"a", "a", "b"} {
		e := &teamv1.Event{Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{ArtifactId: "x", Text: text}}}
		if err := s.Send(&teamv1.ProcessStreamResponse{TaskId: "t", Event: e}); err != nil {
			return err
		}
	}
	<-s.Context().Done()
	return nil
}

// TestReplayIsNoNews: events without sequence numbers that a peer sends again do not end its silence.
func TestReplayIsNoNews(t *testing.T) {
	peer := &replaying{}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	teamv1.RegisterAgentServiceServer(s, peer)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	a, err := remote.New(remote.Config{ID: "far", Address: l.Addr().String(), CancelWait: 100 * time.Millisecond, IdleTimeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	e := agent.AsError(newJournal("hello").play(ctx, a))
	if e == nil || !strings.Contains(e.Message, "idle_timeout") || peer.streams.Load() < 2 {
		t.Errorf("%d streams, error %#v", peer.streams.Load(), e)
	}
}
