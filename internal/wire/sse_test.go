package wire

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
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

// TestA_20_EventsOfOtherServers reads what the HTML standard allows, section 9.2.6, in
// one piece and byte by byte.
func TestA_20_EventsOfOtherServers(t *testing.T) {
	for in, want := range map[string][]Event{
		"":                                  nil,
		"data: a\n\n":                       {{Data: []byte("a")}},
		"data: a\r\rdata: b\r\n\r\n":        {{Data: []byte("a")}, {Data: []byte("b")}},
		"\uFEFFdata:a\n\ndata:  b\n\n":      {{Data: []byte("a")}, {Data: []byte(" b")}},
		"data: a\ndata\ndata: b\n\n":        {{Data: []byte("a\n\nb")}},
		"data:\ndata: a\n\n":                {{Data: []byte("\na")}},
		": comment\n\nretry: 5\nx\n\n":      nil,
		"event: e\n\ndata: a\n\n":           {{Data: []byte("a")}},
		"id: 1\n\ndata: a\n\nid\ndata: b\n": {{ID: "1", Data: []byte("a")}, {Data: []byte("b")}},
		"id: 1\nid: \x00\ndata: a\n\n":      {{ID: "1", Data: []byte("a")}},
		"\n\r\n\ndata: a\n":                 {{Data: []byte("a")}},
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(in), "by bytes": iotest.OneByteReader(strings.NewReader(in))} {
			var got []Event
			for event, err := range ReadEvents(r) {
				if err != nil {
					t.Fatalf("%s of %q: %v", name, in, err)
				}
				got = append(got, event)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s of %q: %s", name, in, diff)
			}
		}
	}
}

// TestA_20_EventsAreYieldedAtOnce: the reader of an event does not wait for what follows it.
func TestA_20_EventsAreYieldedAtOnce(t *testing.T) {
	for _, end := range []string{"\n\n", "\r\r", "\r\n\r\n"} {
		r, w := io.Pipe()
		go func() { _, _ = io.WriteString(w, "data: a"+end) }()
		for event, err := range ReadEvents(r) {
			if err != nil || string(event.Data) != "a" {
				t.Errorf("event %v, error %v", event, err)
			}
			break
		}
		_ = r.Close()
	}
}

// TestA_20_EventThatIsCut: what was read of a line that has no end is no event.
func TestA_20_EventThatIsCut(t *testing.T) {
	for _, in := range []string{"data: {\"a\"", "data: a\nda", "data: a\n\n:"} {
		var last error
		for event, err := range ReadEvents(strings.NewReader(in)) {
			if last = err; err == nil && !strings.HasSuffix(in, "\n:") {
				t.Errorf("an event of %q: %q", in, event.Data)
			}
		}
		if !errors.Is(last, io.ErrUnexpectedEOF) {
			t.Errorf("%q: error %v", in, last)
		}
	}
}

// TestA_20_EventsThatAreTooLarge are refused, in one line and in many.
func TestA_20_EventsThatAreTooLarge(t *testing.T) {
	for name, in := range map[string]string{
		"one line":   "data: " + strings.Repeat("x", MaxEvent),
		"many lines": strings.Repeat("data: "+strings.Repeat("x", 1<<20)+"\n", 17),
		"comments":   strings.Repeat(": "+strings.Repeat("x", 1<<20)+"\n", 17),
	} {
		t.Run(name, func(t *testing.T) {
			for event, err := range ReadEvents(strings.NewReader(in)) {
				if !errors.Is(err, ErrEventTooLarge) {
					t.Errorf("an event of %d bytes, error %v", len(event.Data), err)
				}
			}
		})
	}
}

// BenchmarkReadEvents reads one event that arrives in pieces of 2 KiB, as Go's HTTP server
// sends it. The time of a byte must not depend on the size of the event.
func BenchmarkReadEvents(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20, 15 << 20} {
		in := "data: " + strings.Repeat("x", size) + "\n\n"
		b.Run(strconv.Itoa(size>>10)+"KiB", func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				for _, err := range ReadEvents(pieces{strings.NewReader(in)}) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// pieces is a reader that returns at most 2 KiB at once.
type pieces struct{ r io.Reader }

func (p pieces) Read(b []byte) (int, error) { return p.r.Read(b[:min(len(b), 2<<10)]) }

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
