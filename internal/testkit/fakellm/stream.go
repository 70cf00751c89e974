package fakellm

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"

	"github.com/agentteams/team-server/pkg/model/scripted"
)

// stream sends the turn as server-sent events. The pieces that GateAfter and BreakAfter count are
// events with content: reasoning, text or calls.
func (a *answer) stream() {
	a.w.Header().Set("Content-Type", "text/event-stream")
	a.w.WriteHeader(http.StatusOK)
	if a.turn.Raw != "" {
		a.write(a.turn.Raw)
		a.given = a.ctx.Err() == nil
		return
	}
	before, pieces, after := a.wire.frames(a)
	a.total = len(pieces)
	a.write(before...)
	for _, piece := range pieces {
		if a.turn.Broken && a.pieces >= a.turn.BreakAfter {
			need(errBroken)
		}
		a.write(piece)
		a.pieces++
		a.hold(a.pieces)
	}
	if a.turn.Broken {
		need(errBroken)
	}
	if !a.turn.NoFinish {
		a.write(after...)
	}
	a.given = a.ctx.Err() == nil
}

// frame returns an event of a stream; name may be "".
func frame(name string, data any) string {
	b, err := json.Marshal(data)
	need(err)
	if name != "" {
		name = "event: " + name + "\n"
	}
	return name + "data: " + string(b) + "\n\n"
}

// frames implements wire.
func (chatCompletions) frames(a *answer) (before, pieces, after []string) {
	before = []string{a.chunk([]any{choice(map[string]any{"role": "assistant", "content": ""}, nil)}, nil)}
	for _, delta := range a.deltas() {
		pieces = append(pieces, a.chunk([]any{choice(delta, nil)}, nil))
	}
	after = []string{a.chunk([]any{choice(map[string]any{}, a.reason())}, nil)}
	if a.r.IncludeUsage && !a.turn.NoUsage {
		after = append(after, a.chunk([]any{}, a.usage()))
	}
	return before, pieces, append(after, "data: [DONE]\n\n")
}

func choice(delta map[string]any, reason any) map[string]any {
	return map[string]any{"index": 0, "delta": delta, "finish_reason": reason}
}

// deltas returns the pieces of the turn. Several calls are interleaved by index: first all names,
// then the first and second halves of their arguments.
func (a *answer) deltas() []map[string]any {
	var out []map[string]any
	if a.turn.Reasoning != "" {
		out = append(out, map[string]any{"reasoning_content": a.turn.Reasoning})
	}
	text := scripted.Answer{Text: a.turn.Text, Chunks: a.turn.Chunks}
	for _, piece := range text.Pieces() {
		out = append(out, map[string]any{"content": piece})
	}
	for _, f := range a.turn.Files {
		url := "data:" + f.Type + ";base64," + base64.StdEncoding.EncodeToString(f.Data)
		out = append(out, map[string]any{"content": "", "images": []any{map[string]any{"type": "image_url", "image_url": map[string]any{"url": url}}}})
	}
	for i, c := range a.turn.Calls {
		out = append(out, toolDelta(map[string]any{"index": i, "id": c.ID, "type": "function", "function": function{Name: c.Name}}))
	}
	for half := range 2 {
		for i, c := range a.turn.Calls {
			out = append(out, toolDelta(map[string]any{"index": i, "function": function{Arguments: halves(c.Arguments)[half]}}))
		}
	}
	return out
}

func toolDelta(call map[string]any) map[string]any {
	return map[string]any{"tool_calls": []any{call}}
}

func (a *answer) chunk(choices []any, usage *Usage) string {
	chunk := a.object("chat.completion.chunk", choices)
	if a.r.IncludeUsage && !a.turn.NoUsage {
		chunk["usage"] = usage
	}
	return frame("", chunk)
}

// halves divides the arguments of a call into two pieces.
func halves(arguments string) [2]string {
	r := []rune(arguments)
	return [2]string{string(r[:len(r)/2]), string(r[len(r)/2:])}
}

func (a *answer) write(frames ...string) {
	for _, f := range frames {
		_, _ = io.WriteString(a.w, f)
	}
	_ = http.NewResponseController(a.w).Flush()
}
