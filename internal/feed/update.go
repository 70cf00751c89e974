package feed

import (
	"sync"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/inflight"
)

// Update is one update for the readers of a task.
type Update struct {
	// Seq is the cursor after the update; 0 if further updates of the same event follow.
	Seq int64
	// Response is the task or a change of it. It is shared by all readers and must not be changed.
	Response *a2av1.StreamResponse
	// Last reports whether the stream ends with the update, because the task has ended or waits for
	// input. A stream may also end without it, for example after a direct message.
	Last bool

	encoded *encodings // nil: not shared, encoded for each call
}

// Form is an encoding of updates.
type Form int

// The forms of encoding.
const (
	FormJSON Form = iota
	FormProto

	forms
)

// encodings holds the encoded forms of one update, each of which is made when it is first needed.
type encodings struct {
	forms [forms]struct {
		once sync.Once
		data []byte
		err  error
	}
	sending inflight.Shared
}

// newUpdate returns an update that is encoded once for all its readers.
func newUpdate(seq int64, r *a2av1.StreamResponse) Update {
	return Update{Seq: seq, Response: r, encoded: &encodings{}}
}

// Encoded returns the response in a form. encode is called only once for all readers, which must
// therefore pass equivalent functions. The result is shared and must not be changed.
func (u Update) Encoded(form Form, encode func(proto.Message) ([]byte, error)) ([]byte, error) {
	if u.encoded == nil {
		return encode(u.Response)
	}
	e := &u.encoded.forms[form]
	e.once.Do(func() { e.data, e.err = encode(u.Response) })
	return e.data, e.err
}

// Sending is what is held while readers send the encoded update, nil if they do not share it.
func (u Update) Sending() *inflight.Shared {
	if u.encoded == nil {
		return nil
	}
	return &u.encoded.sending
}
