package remote_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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
