package anthropic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// answer is an answer that is assembled from events.
type answer struct {
	by      string // the name of the model in the configuration
	blocks  []*partialBlock
	places  map[int64]int // index in blocks by the index in the stream
	finish  string
	model   string
	used    agent.Usage
	counted bool // used includes all output; the first report does not
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

// Add implements model.Answer. Fields of another type than documented are ignored, because kinds of events that
// are still unknown may have them.
func (a *answer) Add(data []byte) (string, error) {
	var ev event
	var odd *json.UnmarshalTypeError
	if err := json.Unmarshal(data, &ev); err != nil && (!errors.As(err, &odd) || odd.Field == "") {
		return "", fmt.Errorf("reading the stream: %w", err)
	}
	switch ev.Type {
	case "error", "":
		return "", model.Reported(data)
	case "message_start":
		a.model = ev.Message.Model
		a.count(&ev.Message.Usage)
	case "message":
		return a.message(data), a.stopped()
	case "content_block_start":
		return a.open(&ev), nil
	case "content_block_delta":
		return a.delta(&ev), nil
	case "message_delta":
		a.finish = ev.Delta.StopReason
		a.counted = ev.Usage.Output != nil
		a.count(&ev.Usage)
	case "message_stop":
		return "", a.stopped()
	default: // pings, ends of blocks, and future kinds
	}
	return "", nil
}

// stopped returns io.EOF if the reason for the end is known.
func (a *answer) stopped() error {
	if a.finish != "" {
		return io.EOF
	}
	return nil
}

// Finish implements model.Answer.
func (a *answer) Finish(bool) string { return a.finish }

// Used implements model.Answer.
func (a *answer) Used() (agent.Usage, bool) { return a.used, a.counted }

// count applies a report of the usage, in which tokens of the prompt cache do not count as input. A
// later report repeats an earlier one, wholly or in part.
func (a *answer) count(report *usage) {
	u, cached, written := &a.used, int64(report.CacheRead), int64(report.CacheWrite)
	if all := int64(report.Input) + cached + written; all >= u.Input {
		u.Input, u.CachedInput, u.CacheWrite = all, cached, written
	}
	if report.Output != nil {
		u.Output = max(u.Output, int64(*report.Output))
	}
}

// message adds a whole message, which gateways send that do not stream. It returns its text.
func (a *answer) message(data []byte) string {
	var m struct {
		Model      string            `json:"model"`
		Content    []json.RawMessage `json:"content"`
		StopReason string            `json:"stop_reason"`
		Usage      usage             `json:"usage"`
	}
	_ = json.Unmarshal(data, &m) // fields of another type are ignored, as in events
	text := ""
	for i, raw := range m.Content {
		ev := event{Index: int64(i)}
		_ = json.Unmarshal(raw, &ev.ContentBlock)
		text += a.open(&ev)
		if at, ok := a.places[ev.Index]; ok && len(ev.ContentBlock.Input) > 0 && ev.ContentBlock.Type == "tool_use" {
			a.blocks[at].input.Write(ev.ContentBlock.Input)
		}
	}
	a.model, a.finish, a.counted = m.Model, m.StopReason, m.Usage.Output != nil
	a.count(&m.Usage)
	return text
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
