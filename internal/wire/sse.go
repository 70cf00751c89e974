package wire

import (
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/tmaxmax/go-sse"
)

const (
	// TypeSSE is the media type of a stream of events.
	TypeSSE = "text/event-stream"
	// MaxEvent is the size of one event that is read, in bytes.
	MaxEvent = 16 << 20

	writeTime = 10 * time.Second // for one event, so that a reader that stopped is let go
	keepAlive = 15 * time.Second // between comments on a silent stream
)

// EventWriter writes server-sent events: each one flushed, with a time limit,
// and a comment on a stream that is silent. Safe for concurrent use; Close must
// be called.
type EventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController

	mu   sync.Mutex // guards the writing and err
	err  error
	stop chan struct{}
	done chan struct{}
}

// NewEventWriter sends the headers of a stream of events, status 200. broken is
// called when the reader is found gone while no event is being written.
func NewEventWriter(w http.ResponseWriter, broken func(error)) *EventWriter {
	h := w.Header()
	h.Set("Content-Type", TypeSSE)
	h.Set("Cache-Control", "no-cache, no-store")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	e := &EventWriter{w: w, control: http.NewResponseController(w), stop: make(chan struct{}), done: make(chan struct{})}
	go e.beat(broken)
	return e
}

// Event writes one event. id 0 writes none; kind may be empty; data is one line
// of JSON.
func (e *EventWriter) Event(id int64, kind string, data []byte) error {
	m := &sse.Message{}
	if id != 0 {
		m.ID = sse.ID(strconv.FormatInt(id, 10))
	}
	if kind != "" {
		t, err := sse.NewType(kind)
		if err != nil {
			return fmt.Errorf("naming an event: %w", err)
		}
		m.Type = t
	}
	m.AppendData(string(data))
	return e.write(m)
}

// Close ends the keep-alive and gives the connection back its time.
func (e *EventWriter) Close() {
	close(e.stop)
	<-e.done
	_ = e.control.SetWriteDeadline(time.Time{}) // not every connection has one
}

func (e *EventWriter) write(m *sse.Message) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return e.err
	}
	_ = e.control.SetWriteDeadline(time.Now().Add(writeTime)) // not every connection has one
	_, err := m.WriteTo(e.w)
	if err == nil {
		err = e.control.Flush()
	}
	if err != nil {
		e.err = fmt.Errorf("writing an event: %w", err)
	}
	return e.err
}

func (e *EventWriter) beat(broken func(error)) {
	defer close(e.done)
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		select {
		case <-e.stop:
			return
		case <-tick.C:
		}
		m := &sse.Message{}
		m.AppendComment("keep-alive")
		if err := e.write(m); err != nil {
			broken(err)
			return
		}
	}
}

// Event is a server-sent event as it was read.
type Event struct {
	ID   string // the newest id so far
	Kind string
	Data []byte
}

// ReadEvents reads server-sent events until the end of r. Comments are skipped.
func ReadEvents(r io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for e, err := range sse.Read(r, &sse.ReadConfig{MaxEventSize: MaxEvent}) {
			if err != nil {
				yield(Event{}, fmt.Errorf("reading an event: %w", err))
				return
			}
			if e.Data == "" {
				continue
			}
			if !yield(Event{ID: e.LastEventID, Kind: e.Type, Data: []byte(e.Data)}, nil) {
				return
			}
		}
	}
}
