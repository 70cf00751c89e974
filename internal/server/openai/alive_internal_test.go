package openai

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentteams/team-server/internal/wire"
)

// limited is a recorder with a write deadline.
type limited struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (l *limited) SetWriteDeadline(at time.Time) error {
	l.deadline = at
	return nil
}

// TestPlainCallsStayAlive: while a plain call waits it sends blanks, but nothing before it can no longer be refused by a
// status. Between them it has no write deadline, at which net/http would reset a stream of HTTP/2 (seen with Go 1.26.8, see
// findings/go-http2-write-deadline.sh).
func TestPlainCallsStayAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &limited{ResponseRecorder: httptest.NewRecorder()}
		p := &patient{w: w}
		p.start(p.blank)
		time.Sleep(refusalTime - time.Second)
		synctest.Wait()
		p.mu.Lock()
		if w.Flushed || w.Body.Len() > 0 {
			t.Errorf("%q is sent too early", w.Body)
		}
		p.mu.Unlock()
		time.Sleep(310 * time.Second)
		synctest.Wait()
		if p.stop(); !p.begun || w.Header().Get("Content-Type") != "application/json" || w.Code != http.StatusOK {
			t.Errorf("got %d %v", w.Code, w.Header())
		}
		if !w.deadline.IsZero() {
			t.Errorf("the write deadline is %v while nothing is written", w.deadline)
		}
		if n := w.Body.Len(); strings.TrimSpace(w.Body.String()) != "" || n < 310/100 {
			t.Errorf("%d bytes %q", n, w.Body)
		}
		n := w.Body.Len()
		time.Sleep(time.Hour)
		synctest.Wait()
		if w.Body.Len() != n {
			t.Error("it goes on after the end")
		}
	})
}

// TestStreamsStayAlive: a stream without a text sends chunks with an empty delta, or repeats its state, of which all clients
// know that it is alive.
func TestStreamsStayAlive(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		form         form
		first, again string
	}{
		{
			&chatForm{head: completion{ID: "x", Created: 1, Model: "m"}}, `"delta":{"role":"assistant","content":""}`,
			`data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":null}]}`,
		},
		{&responseForm{behind: -1}, "event: response.created\ndata: {", `,"sequence_number":1,"type":"response.in_progress"}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := httptest.NewRecorder()
			f := &follow{answer: answer{task: "t"}, to: &events{form: c.form}}
			f.to.begin = func() *wire.EventWriter { return wire.NewEventWriter(w, time.Minute, func(error) {}) }
			f.start(f.alive)
			time.Sleep(refusalTime - time.Second)
			synctest.Wait()
			f.mu.Lock()
			if w.Flushed || w.Body.Len() > 0 {
				t.Errorf("%q is sent too early", w.Body)
			}
			f.mu.Unlock()
			time.Sleep(310 * time.Second)
			synctest.Wait()
			if f.stop(); f.to.writer == nil {
				t.Fatal("the stream has not begun")
			}
			f.to.writer.Close()
			if n := strings.Count(w.Body.String(), c.again); n < 310/100 || !strings.Contains(w.Body.String(), c.first) {
				t.Errorf("%d signs of life in %s", n, w.Body)
			}
		})
	}
}
