package wire

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// TypeSSE is the media type of a stream of events.
	TypeSSE = "text/event-stream"
	// MaxEvent is the size of one event that is read, in bytes.
	MaxEvent = 16 << 20

	keepAlive = 15 * time.Second // of silence, before a comment
	piece     = 64 << 10         // bytes that a reader has to take in time
)

// EventWriter writes server-sent events: each one flushed, with a time limit,
// and a comment on a stream that is silent. Safe for concurrent use; Close must
// be called.
type EventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	limit   time.Duration
	broken  func(error)

	mu     sync.Mutex // guards the writing and what follows
	err    error
	closed bool
	beat   *time.Timer
	head   []byte // of the event that is written
}

// NewEventWriter sends the headers of a stream of events, status 200, at once. A reader
// that takes nothing for as long as limit is given up. broken is called when it
// is found gone while no event is being written.
func NewEventWriter(w http.ResponseWriter, limit time.Duration, broken func(error)) *EventWriter {
	h := w.Header()
	h.Set("Content-Type", TypeSSE)
	h.Set("Cache-Control", "no-cache, no-store")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	e := &EventWriter{w: w, control: http.NewResponseController(w), limit: limit, broken: broken}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.extend()
	_ = e.control.Flush() // what is written next finds out who is gone
	e.beat = time.AfterFunc(keepAlive, e.comment)
	return e
}

// Event writes one event. id 0 writes none; kind may be empty; the parts of data
// together are one line of JSON.
func (e *EventWriter) Event(id int64, kind string, data ...[]byte) error {
	var digits [20]byte
	if id == 0 {
		return e.event(nil, kind, data)
	}
	return e.event(strconv.AppendInt(digits[:0], id, 10), kind, data)
}

// EventAt is Event with an id that is a text; empty writes none.
func (e *EventWriter) EventAt(id, kind string, data ...[]byte) error {
	return e.event([]byte(id), kind, data)
}

func (e *EventWriter) event(id []byte, kind string, data [][]byte) error {
	if bytes.ContainsAny([]byte(kind), "\r\n") || bytes.ContainsAny(id, "\r\n\x00") {
		return errors.New("naming an event: the name has several lines")
	}
	for _, d := range data {
		if bytes.IndexByte(d, '\n') >= 0 || bytes.IndexByte(d, '\r') >= 0 {
			data = lines(data)
			break
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.beat.Stop()
	e.head = e.head[:0]
	if len(id) > 0 {
		e.head = append(append(append(e.head, "id: "...), id...), '\n')
	}
	if kind != "" {
		e.head = append(append(append(e.head, "event: "...), kind...), '\n')
	}
	e.head = append(e.head, "data: "...)
	e.extend()
	e.put(e.head)
	for _, d := range data {
		e.put(d)
	}
	e.put([]byte("\n\n"))
	return e.flush()
}

// lines makes several lines of data of what would otherwise end the event.
func lines(data [][]byte) [][]byte {
	text := bytes.Join(data, nil)
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	text = bytes.ReplaceAll(text, []byte("\r"), []byte("\n"))
	return [][]byte{bytes.ReplaceAll(text, []byte("\n"), []byte("\ndata: "))}
}

// Close ends the keep-alive. What is still to be sent has the time of one event.
func (e *EventWriter) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.beat.Stop()
	if e.err == nil {
		e.extend()
	}
}

// extend gives the reader its time again.
func (e *EventWriter) extend() {
	_ = e.control.SetWriteDeadline(time.Now().Add(e.limit)) // not every connection has one
}

// put writes bytes, a piece at a time: who takes one of them in time has not
// stalled. The caller holds mu.
func (e *EventWriter) put(b []byte) {
	for len(b) > 0 && e.err == nil {
		n := min(len(b), piece)
		if n == piece {
			e.extend()
		}
		_, e.err = e.w.Write(b[:n])
		b = b[n:]
	}
}

// flush sends what was written. The caller holds mu.
func (e *EventWriter) flush() error {
	if e.err == nil {
		e.err = e.control.Flush()
	}
	if e.err != nil {
		return fmt.Errorf("writing an event: %w", e.err)
	}
	e.beat.Reset(keepAlive)
	return nil
}

// comment shows that a silent stream is alive, and finds out whether its reader is.
func (e *EventWriter) comment() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.err != nil {
		return
	}
	e.extend()
	e.put([]byte(": keep-alive\n\n"))
	if err := e.flush(); err != nil {
		e.broken(err)
	}
}
