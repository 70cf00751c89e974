package feed

import (
	"sync"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// Update is one thing a reader of a task is told.
type Update struct {
	// Seq is the cursor behind it; 0 where more of the same event follows.
	Seq int64
	// Response is a Task first, then what happens. Shared by all readers: read only.
	Response *a2av1.StreamResponse
	// Last says that the stream ends with it: the task has ended, or asks for input.
	// A stream that ends otherwise does not say so.
	Last bool

	encoded *encodings // nil: encoded for one reader
}

// Form is one of the ways in which updates are encoded.
type Form int

// The forms.
const (
	FormJSON Form = iota
	FormProto

	forms
)

// encodings are the forms of one update, made when somebody asks for them.
type encodings [forms]struct {
	once sync.Once
	data []byte
	err  error
}

// newUpdate returns an update that is encoded once, however many are told it.
func newUpdate(seq int64, r *a2av1.StreamResponse) Update {
	return Update{Seq: seq, Response: r, encoded: &encodings{}}
}

// Encoded returns the response in a form, as encode makes it: once for all
// readers of the task, who use the same encode. The result is shared: read only.
func (u Update) Encoded(form Form, encode func(proto.Message) ([]byte, error)) ([]byte, error) {
	if u.encoded == nil {
		return encode(u.Response)
	}
	e := &u.encoded[form]
	e.once.Do(func() { e.data, e.err = encode(u.Response) })
	return e.data, e.err
}
