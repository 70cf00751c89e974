package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
)

// Event is a server-sent event as it was read.
type Event struct {
	ID   string // the newest id so far
	Kind string
	Data []byte
}

// Failed reports whether an event of REST is an error: its type says so or, where other
// servers give it none, what it holds.
func (e Event) Failed() bool {
	if e.Kind == "error" {
		return true
	}
	var body struct {
		Error *json.RawMessage `json:"error"`
	}
	return bytes.Contains(e.Data, []byte(`"error"`)) && json.Unmarshal(e.Data, &body) == nil && body.Error != nil
}

// IsEventStream reports whether an answer with these headers is a stream of events.
func IsEventStream(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && kind == TypeSSE
}

// ErrEventTooLarge is the error for an event that is larger than MaxEvent.
var ErrEventTooLarge = fmt.Errorf("it is larger than %d bytes", MaxEvent)

// ReadEvents reads server-sent events until the end of r, as the HTML standard defines
// them (section 9.2.6), except that the end of r after a line also ends an event. It skips
// comments and events without data. An error is the last thing that it yields:
// io.ErrUnexpectedEOF where r ends within a line, ErrEventTooLarge after an event that is
// larger than MaxEvent, or an error of r.
func ReadEvents(r io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := newLineScanner(r)
		event, size := Event{}, 0
		for lines.Scan() {
			line := lines.Bytes()
			if len(line) > 0 {
				if size += len(line); size > MaxEvent {
					yield(Event{}, fmt.Errorf("reading an event: %w", ErrEventTooLarge))
					return
				}
				event.add(line)
				continue
			}
			if !event.yield(yield) {
				return
			}
			event, size = Event{ID: event.ID}, 0
		}
		switch err := lines.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			yield(Event{}, fmt.Errorf("reading an event: %w", ErrEventTooLarge))
		case err != nil:
			yield(Event{}, fmt.Errorf("reading an event: %w", err))
		default:
			event.yield(yield)
		}
	}
}

// add adds a field of an event. It ignores a comment, which is a field without a name,
// and the fields that it does not know.
func (e *Event) add(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		if e.Data != nil {
			e.Data = append(e.Data, '\n')
		}
		e.Data = append(e.Data, value...)
		if e.Data == nil {
			e.Data = []byte{} // a second line of data follows a line break
		}
	case "event":
		e.Kind = string(value)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			e.ID = string(value)
		}
	}
}

// yield yields an event that has data.
func (e *Event) yield(yield func(Event, error) bool) bool {
	return len(e.Data) == 0 || yield(*e, nil)
}

// newLineScanner returns a scanner of lines that end with a line feed, a carriage
// return or both, after an optional byte order mark. It examines each byte once, however
// small the pieces are in which a long line arrives, and the end of r within a line is
// io.ErrUnexpectedEOF.
func newLineScanner(r io.Reader) *bufio.Scanner {
	var (
		searched int  // bytes of data in which there is no end of a line
		feed     bool // the last line ended with a carriage return: a line feed belongs to it
	)
	s := bufio.NewScanner(skipBOM(r))
	s.Buffer(nil, MaxEvent)
	s.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		begin := 0
		if feed && len(data) > 0 {
			feed = false
			if data[0] == '\n' {
				begin = 1
			}
		}
		searched = max(searched, begin)
		if i := bytes.IndexAny(data[searched:], "\r\n"); i >= 0 {
			end := searched + i
			searched, feed = 0, data[end] == '\r'
			return end + 1, data[begin:end:end], nil
		}
		if atEOF && len(data) > begin {
			return 0, nil, io.ErrUnexpectedEOF
		}
		searched = len(data) - begin
		return begin, nil, nil
	})
	return s
}

// skipBOM returns r without a byte order mark at its beginning.
func skipBOM(r io.Reader) io.Reader {
	const bom = "\uFEFF"
	b := bufio.NewReader(r)
	if begin, _ := b.Peek(1); string(begin) != bom[:1] {
		return b
	}
	if begin, _ := b.Peek(len(bom)); string(begin) == bom {
		_, _ = b.Discard(len(bom))
	}
	return b
}
