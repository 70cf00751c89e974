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

// receive makes the request and puts the answer together, handing on each piece
// of text. The library makes the request; its reader is not used: it makes a text
// of what the provider reports within the stream.
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

// answer is put together from events.
type answer struct {
	blocks  []*growing
	places  map[int64]int // index of a block in the stream, place in blocks
	finish  string
	model   string
	in, out int64
	stopped bool
}

// growing is a block of which pieces come.
type growing struct {
	block
	text, thinking, signature, input strings.Builder
}

// content are the blocks, whole.
func (a *answer) content() []*block {
	out := make([]*block, len(a.blocks))
	for i, g := range a.blocks {
		b := g.block
		b.Text, b.Thinking, b.Signature, b.Input = g.text.String(), g.thinking.String(), g.signature.String(), g.input.String()
		out[i] = &b
	}
	return out
}

// reported is what the provider says of a failure.
type reported struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func (r *reported) Error() string { return r.Type + ": " + r.Message }

// end judges how the stream ended. An answer is whole once its stop reason is
// there, whatever becomes of the connection then.
func (a *answer) end(err error) error {
	switch {
	case a.finish != "" && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return nil
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

// add takes an event and returns the text it adds.
func (a *answer) add(data []byte) (string, error) {
	var head struct {
		Type  string    `json:"type"`
		Error *reported `json:"error"`
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
	default: // pings, ends of blocks, and what will be new
		return "", nil
	}
	return a.fold(&ev), nil
}

func (a *answer) fold(ev *anthropic.MessageStreamEventUnion) string {
	switch ev.Type {
	case "message_start":
		u := ev.Message.Usage
		a.model = string(ev.Message.Model)
		a.in = u.InputTokens + u.CacheCreationInputTokens + u.CacheReadInputTokens
		a.out = u.OutputTokens
	case "content_block_start":
		return a.open(ev)
	case "content_block_delta":
		return a.delta(ev)
	case "message_delta":
		u := ev.Usage
		a.finish = string(ev.Delta.StopReason)
		a.in = max(a.in, u.InputTokens+u.CacheCreationInputTokens+u.CacheReadInputTokens)
		a.out = max(a.out, u.OutputTokens)
	case "message_stop":
		a.stopped = a.finish != ""
	}
	return ""
}

// open begins a block. Kinds that nobody asked for are left out.
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
	g := &growing{block: block{Type: c.Type, Data: c.Data, ID: c.ID, Name: c.Name}}
	g.thinking.WriteString(c.Thinking)
	g.signature.WriteString(c.Signature)
	a.blocks = append(a.blocks, g)
	return g.add(c.Text)
}

// delta adds to a block.
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

// add adds to the text of a text.
func (g *growing) add(text string) string {
	if g.Type != "text" {
		return ""
	}
	g.text.WriteString(text)
	return text
}

// said finds what the provider reports of a failure.
func said(err error) *model.Said {
	var api *anthropic.Error
	var in *reported
	switch {
	case errors.As(err, &in):
		return &model.Said{Status: statusOf(in.Type), Message: in.Message}
	case errors.As(err, &api):
		var body struct {
			Error reported `json:"error"`
		}
		_ = json.Unmarshal([]byte(api.RawJSON()), &body) // without it nothing is said
		return &model.Said{Status: api.StatusCode, Message: body.Error.Message}
	}
	return nil
}

// statusOf is the HTTP status that an error within a stream would have had.
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

// statusOverloaded is the provider's own status.
const statusOverloaded = 529
