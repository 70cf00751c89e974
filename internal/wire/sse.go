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
	// MaxEvent is the maximum size of an event that is read, in bytes.
	MaxEvent = 16 << 20

	keepAlive = 15 * time.Second // a comment is sent after this time without an event
	piece     = 64 << 10         // number of bytes for which the reader has the full time limit
)

// EventWriter writes server-sent events. It flushes each event, limits the time that the reader
// may take to accept it, and writes comments while there are no events. It is safe for
// concurrent use. The caller must call Close.
type EventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	limit   time.Duration
	broken  func(error)

	mu     sync.Mutex // guards w and the fields below
	err    error
	closed bool
	beat   *time.Timer
	head   []byte // buffer for the lines before the data of an event
}

// NewEventWriter immediately sends the headers of a stream of events, with status 200. If the
// reader accepts no data for the duration limit, writing fails. broken is called if writing a
// comment fails; Event and EventAt return their own errors.
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
	_ = e.control.Flush() // an error is reported by the next write
	e.beat = time.AfterFunc(keepAlive, e.comment)
	return e
}

// Event writes an event without an id line if id is 0, and without an event line if kind is
// empty. The concatenated parts of data are its data, usually one line of JSON.
func (e *EventWriter) Event(id int64, kind string, data ...[]byte) error {
	var digits [20]byte
	if id == 0 {
		return e.event(nil, kind, data)
	}
	return e.event(strconv.AppendInt(digits[:0], id, 10), kind, data)
}

// EventAt is like Event, but its id is a text; an event with an empty id has no id line.
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

// lines returns data with line breaks as several data lines, because an empty line in the data
// would end the event.
func lines(data [][]byte) [][]byte {
	text := bytes.Join(data, nil)
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	text = bytes.ReplaceAll(text, []byte("\r"), []byte("\n"))
	return [][]byte{bytes.ReplaceAll(text, []byte("\n"), []byte("\ndata: "))}
}

// Close stops the comments. Data that is still buffered must be sent within the time limit of
// one event.
func (e *EventWriter) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.beat.Stop()
	if e.err == nil {
		e.extend()
	}
}

// extend restarts the time limit of the reader.
func (e *EventWriter) extend() {
	_ = e.control.SetWriteDeadline(time.Now().Add(e.limit)) // not every connection has one
}

// put writes bytes in pieces and restarts the time limit for each full piece, so that a slow
// reader of a large event is not cut. The caller must hold mu.
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

// comment writes a comment to a stream without events, which keeps the connection open and
// detects that the reader is gone.
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
