package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	anthropic "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// receive makes the request, assembles the answer and calls text with each piece of text. The
// library makes the request, but its stream reader is not used, because it converts errors within
// the stream to plain text.
func (m *Model) receive(ctx context.Context, c *model.Call, req *agent.ModelRequest, a *answer, text func(string) bool) error {
	if err := m.service.NewStreaming(ctx, m.request(req), option.WithHTTPClient(c)).Err(); err != nil {
		return err
	}
	if c.Failed() {
		return fmt.Errorf("the endpoint answered with status %d", c.Status())
	}
	if err := c.Streams(); err != nil {
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
	return nil
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

// reportedError is an error that the provider reports.
type reportedError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func (r *reportedError) Error() string { return r.Type + ": " + r.Message }

// end returns the error of a stream that ended with err. An answer is complete once its stop reason
// was received, whatever happens to the connection afterwards.
func (a *answer) end(err error) error {
	switch {
	case a.finish != "" && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return nil
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

// add adds an event and returns the text it contains.
func (a *answer) add(data []byte) (string, error) {
	var head struct {
		Type  string         `json:"type"`
		Error *reportedError `json:"error"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return "", fmt.Errorf("reading the stream: %w", err)
	}
	var ev anthropic.MessageStreamEventUnion
	switch head.Type {
	case "error":
		if head.Error == nil {
			return "", model.ErrBroken
		}
		return "", head.Error
	case "message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop":
		if err := json.Unmarshal(data, &ev); err != nil {
			return "", fmt.Errorf("reading the stream: %w", err)
		}
	default: // pings, ends of blocks, and future kinds
		return "", nil
	}
	return a.fold(&ev), nil
}

// fold applies an event to the answer.
func (a *answer) fold(ev *anthropic.MessageStreamEventUnion) string {
	switch ev.Type {
	case "message_start":
		u := ev.Message.Usage
		a.model = string(ev.Message.Model)
		a.count(u.InputTokens, u.CacheReadInputTokens, u.CacheCreationInputTokens, u.OutputTokens)
	case "content_block_start":
		return a.open(ev)
	case "content_block_delta":
		return a.delta(ev)
	case "message_delta":
		u := ev.Usage
		a.finish = string(ev.Delta.StopReason)
		a.counted = u.JSON.OutputTokens.Valid()
		a.count(u.InputTokens, u.CacheReadInputTokens, u.CacheCreationInputTokens, u.OutputTokens)
	case "message_stop":
		a.stopped = a.finish != ""
	}
	return ""
}

// count applies a report of the usage, in which tokens of the prompt cache do not count as input. A
// later report repeats an earlier one, wholly or in part.
func (a *answer) count(input, cached, written, output int64) {
	u := &a.used
	if all := input + cached + written; all >= u.Input {
		u.Input, u.CachedInput, u.CacheWrite = all, cached, written
	}
	u.Output = max(u.Output, output)
}

// open begins a block. Blocks of unknown kinds are ignored.
func (a *answer) open(ev *anthropic.MessageStreamEventUnion) string {
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
func (a *answer) delta(ev *anthropic.MessageStreamEventUnion) string {
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
	var api *anthropic.Error
	var in *reportedError
	switch {
	case errors.As(err, &in):
		return &model.EndpointError{Status: statusOf(in.Type), Message: in.Message}
	case errors.As(err, &api):
		var body struct {
			Error reportedError `json:"error"`
		}
		_ = json.Unmarshal([]byte(api.RawJSON()), &body) // without a report only the status is known
		return &model.EndpointError{Status: api.StatusCode, Message: body.Error.Message}
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
