package wire

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestA_20_Events(t *testing.T) {
	w := httptest.NewRecorder()
	e := NewEventWriter(w, time.Minute, func(error) {})
	for i, data := range []string{`{"a":1}`, `{"text":"x\n\nevent: forged"}`} {
		if err := e.Event(int64(i+1), "", []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Event(0, "error", []byte("one\r\nevent: forged\n\nid: 9")); err != nil {
		t.Fatal(err)
	}
	if err := e.Event(0, "bad\nkind", nil); err == nil {
		t.Error("a kind of two lines was taken")
	}
	e.Close()
	var got []Event
	for event, err := range ReadEvents(w.Body) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, event)
	}
	want := []Event{
		{ID: "1", Data: []byte(`{"a":1}`)},
		{ID: "2", Data: []byte(`{"text":"x\n\nevent: forged"}`)},
		{ID: "2", Kind: "error", Data: []byte("one\nevent: forged\n\nid: 9")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestA_20_KeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		e := NewEventWriter(w, time.Minute, func(error) {})
		time.Sleep(31 * time.Second)
		e.Close()
		if n := strings.Count(w.Body.String(), ": keep-alive\n\n"); n != 2 {
			t.Errorf("%d comments in 31 s: %q", n, w.Body)
		}
	})
}

func TestA_20_ReaderThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan error, 1)
		e := NewEventWriter(brokenWriter{httptest.NewRecorder()}, time.Minute, func(err error) { gone <- err })
		if err := <-gone; err == nil {
			t.Error("no error")
		}
		if e.Event(1, "", []byte("{}")) == nil {
			t.Error("an event was written")
		}
		e.Close()
	})
}

func TestA_20_KeepAliveOnlyInSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		e := NewEventWriter(w, time.Minute, func(error) {})
		for range 10 {
			time.Sleep(10 * time.Second)
			if err := e.Event(1, "", []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(16 * time.Second)
		e.Close()
		time.Sleep(time.Minute)
		if n := strings.Count(w.Body.String(), ": keep-alive"); n != 1 {
			t.Errorf("%d comments: one is due, 15 s behind the last of events that come every 10 s", n)
		}
	})
}

// slowWriter takes 10 s for each piece, and only within its deadline.
type slowWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
	most     int // bytes at once
}

func (w *slowWriter) SetWriteDeadline(t time.Time) error {
	w.deadline = t
	return nil
}

func (w *slowWriter) Write(b []byte) (int, error) {
	w.most = max(w.most, len(b))
	if len(b) >= piece {
		time.Sleep(10 * time.Second)
	}
	if time.Now().After(w.deadline) {
		return 0, os.ErrDeadlineExceeded
	}
	return w.ResponseRecorder.Write(b)
}

func (w *slowWriter) FlushError() error {
	if time.Now().After(w.deadline) {
		return os.ErrDeadlineExceeded
	}
	return nil
}

func TestP10_WhoTakesPiecesHasNotStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slowWriter{ResponseRecorder: httptest.NewRecorder()}
		e := NewEventWriter(w, 15*time.Second, func(error) {})
		defer e.Close()
		for range 2 { // the second one long after the first one's time
			if err := e.Event(1, "", bytes.Repeat([]byte("x"), 5*piece)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(12 * time.Second)
		}
		if w.most > piece {
			t.Errorf("%d bytes were written at once", w.most)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		e := NewEventWriter(&slowWriter{ResponseRecorder: httptest.NewRecorder()}, 9*time.Second, func(error) {})
		defer e.Close()
		err := e.Event(1, "", bytes.Repeat([]byte("x"), piece))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a reader that stalls: %v", err)
		}
		if again := e.Event(2, "", []byte("{}")); !errors.Is(again, os.ErrDeadlineExceeded) {
			t.Errorf("after that: %v", again)
		}
	})
}

type brokenWriter struct{ *httptest.ResponseRecorder }

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestA_12_EventsThatAreErrors(t *testing.T) {
	for _, tt := range []struct {
		kind, data string
		want       bool
	}{
		{"error", "gone", true},
		{"error", `{"code":-32001,"message":"no such task"}`, true},
		{"", `{"error":{"code":404,"message":"no such task"}}`, true},
		{"", ` {"error": "gone"}`, true},
		{"", `{"statusUpdate":{"metadata":{"error":"none"}}}`, false},
		{"", `{"task":{},"error":null}`, false},
		{"", `{"error":`, false},
		{"message", `{"task":{}}`, false},
	} {
		if got := (Event{Kind: tt.kind, Data: []byte(tt.data)}).Failed(); got != tt.want {
			t.Errorf("%q %s: %v, want %v", tt.kind, tt.data, got, tt.want)
		}
	}
}

func TestA_20_TypesOfStreams(t *testing.T) {
	for kind, want := range map[string]bool{
		"text/event-stream": true, "Text/Event-Stream; charset=utf-8": true,
		"": false, "application/json": false, "text/event-streams": false,
	} {
		if got := IsEventStream(http.Header{"Content-Type": {kind}}); got != want {
			t.Errorf("%q: %v, want %v", kind, got, want)
		}
	}
}
