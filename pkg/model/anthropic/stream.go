package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// receive makes the request, assembles the answer and calls text with each piece of text.
func (m *Model) receive(ctx context.Context, c *model.Call, req *agent.ModelRequest, a *answer, text func(string) bool) error {
	if err := m.send(ctx, c, req); err != nil {
		return err
	}
	for events := c.Events(); !a.stopped; {
		data, err := events.Next()
		if err != nil {
			return a.end(err)
		}
		piece, err := a.add(data)
		if err != nil {
			return err
		}
		if piece != "" && !text(piece) {
			return model.ErrStopped
		}
	}
	return a.end(io.EOF)
}

// answer is an answer that is assembled from events.
type answer struct {
	blocks  []*partialBlock
	places  map[int64]int // index in blocks by the index in the stream
	finish  string
	model   string
	used    agent.Usage
	counted bool // used includes all output; the first report does not
	stopped bool
}

// partialBlock is a block that is still being received.
type partialBlock struct {
	block
	text, thinking, signature, input strings.Builder
}

// content returns the complete blocks.
func (a *answer) content() []*block {
	out := make([]*block, len(a.blocks))
	for i, g := range a.blocks {
		b := g.block
		b.Text, b.Thinking, b.Signature, b.Input = g.text.String(), g.thinking.String(), g.signature.String(), g.input.String()
		out[i] = &b
	}
	return out
}

// end returns the error of a stream that ended with err. An answer is complete once its stop reason
// was received, whatever happens to the connection afterwards.
func (a *answer) end(err error) error {
	if broken := model.BrokenEnd(a.finish); broken != nil {
		return broken
	}
	switch {
	case a.finish != "" && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return nil
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

// add adds an event and returns the text it contains. Fields of another type than documented are
// ignored, because kinds of events that are still unknown may have them.
func (a *answer) add(data []byte) (string, error) {
	var ev event
	var odd *json.UnmarshalTypeError
	if err := json.Unmarshal(data, &ev); err != nil && (!errors.As(err, &odd) || odd.Field == "") {
		return "", fmt.Errorf("reading the stream: %w", err)
	}
	switch ev.Type {
	case "error":
		if ev.Error == nil {
			return "", &model.BrokenError{}
		}
		return "", ev.Error
	case "message_start":
		a.model = ev.Message.Model
		a.count(&ev.Message.Usage)
	case "content_block_start":
		return a.open(&ev), nil
	case "content_block_delta":
		return a.delta(&ev), nil
	case "message_delta":
		a.finish = ev.Delta.StopReason
		a.counted = ev.Usage.Output != ""
		a.count(&ev.Usage)
	case "message_stop":
		a.stopped = a.finish != ""
	default: // pings, ends of blocks, and future kinds
	}
	return "", nil
}

// count applies a report of the usage, in which tokens of the prompt cache do not count as input. A
// later report repeats an earlier one, wholly or in part.
func (a *answer) count(report *usage) {
	u, cached, written := &a.used, tokens(report.CacheRead), tokens(report.CacheWrite)
	if all := tokens(report.Input) + cached + written; all >= u.Input {
		u.Input, u.CachedInput, u.CacheWrite = all, cached, written
	}
	u.Output = max(u.Output, tokens(report.Output))
}

// open begins a block. Blocks of unknown kinds are ignored.
func (a *answer) open(ev *event) string {
	c := ev.ContentBlock
	switch c.Type {
	case "text", "thinking", "redacted_thinking", "tool_use":
	default:
		return ""
	}
	if a.places == nil {
		a.places = map[int64]int{}
	}
	a.places[ev.Index] = len(a.blocks)
	g := &partialBlock{block: block{Type: c.Type, Data: c.Data, ID: c.ID, Name: c.Name}}
	g.thinking.WriteString(c.Thinking)
	g.signature.WriteString(c.Signature)
	a.blocks = append(a.blocks, g)
	return g.add(c.Text)
}

// delta appends to a block.
func (a *answer) delta(ev *event) string {
	at, ok := a.places[ev.Index]
	if !ok {
		return ""
	}
	g, d := a.blocks[at], ev.Delta
	g.thinking.WriteString(d.Thinking)
	g.signature.WriteString(d.Signature)
	g.input.WriteString(d.PartialJSON)
	return g.add(d.Text)
}

// add appends to a text block and returns the text. Blocks of other types ignore it.
func (g *partialBlock) add(text string) string {
	if g.Type != "text" {
		return ""
	}
	g.text.WriteString(text)
	return text
}

// endpointError returns what the provider reports in an error, or nil.
func endpointError(err error) *model.EndpointError {
	var rejected *model.Rejection
	var in *reportedError
	switch {
	case errors.As(err, &in):
		return &model.EndpointError{Status: statusOf(in.Type), Message: in.Message}
	case errors.As(err, &rejected):
		var body struct {
			Error reportedError `json:"error"`
		}
		_ = json.Unmarshal(rejected.Body, &body) // without a report only the status is known
		return &model.EndpointError{Status: rejected.Status, Message: body.Error.Message}
	}
	return nil
}

// statusOf returns the HTTP status for the type of an error within a stream.
func statusOf(kind string) int {
	switch kind {
	case "invalid_request_error":
		return http.StatusBadRequest
	case "authentication_error":
		return http.StatusUnauthorized
	case "permission_error", "billing_error":
		return http.StatusForbidden
	case "not_found_error":
		return http.StatusNotFound
	case "request_too_large":
		return http.StatusRequestEntityTooLarge
	case "rate_limit_error":
		return http.StatusTooManyRequests
	case "overloaded_error":
		return statusOverloaded
	}
	return http.StatusInternalServerError
}

// statusOverloaded is a status that only this provider uses.
const statusOverloaded = 529
