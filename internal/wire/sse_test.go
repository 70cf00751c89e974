package wire

import (
	"errors"
	"net/http/httptest"
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

type brokenWriter struct{ *httptest.ResponseRecorder }

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("gone") }
