package fakellm

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/agentteams/team-server/pkg/model/scripted"
)

// stream sends the turn as server-sent events. Pieces, for GateAfter and
// BreakAfter, are those with content: of reasoning, of text, of calls.
func (a *answer) stream() {
	a.w.Header().Set("Content-Type", "text/event-stream")
	a.w.WriteHeader(http.StatusOK)
	if a.turn.Raw != "" {
		_, _ = io.WriteString(a.w, a.turn.Raw)
		a.flush()
		a.given = a.ctx.Err() == nil
		return
	}
	a.send([]any{choice(map[string]any{"role": "assistant", "content": ""}, nil)}, nil)
	for _, delta := range a.deltas() {
		if a.turn.Broken && a.pieces >= a.turn.BreakAfter {
			need(errBroken)
		}
		a.send([]any{choice(delta, nil)}, nil)
		a.pieces++
		a.hold(a.pieces)
	}
	if a.turn.Broken {
		need(errBroken)
	}
	a.end()
}

// end sends what follows the pieces.
func (a *answer) end() {
	if !a.turn.NoFinish {
		a.send([]any{choice(map[string]any{}, a.reason())}, nil)
		if a.r.IncludeUsage && !a.turn.NoUsage {
			a.send([]any{}, a.usage())
		}
		a.write("[DONE]")
	}
	a.given = a.ctx.Err() == nil
}

func choice(delta map[string]any, reason any) map[string]any {
	return map[string]any{"index": 0, "delta": delta, "finish_reason": reason}
}

// deltas are the pieces of the turn. Calls come at the same time, as their index
// tells: first all names, then the halves of their arguments.
func (a *answer) deltas() []map[string]any {
	var out []map[string]any
	if a.turn.Reasoning != "" {
		out = append(out, map[string]any{"reasoning_content": a.turn.Reasoning})
	}
	text := scripted.Answer{Text: a.turn.Text, Chunks: a.turn.Chunks}
	for _, piece := range text.Pieces() {
		out = append(out, map[string]any{"content": piece})
	}
	for i, c := range a.turn.Calls {
		out = append(out, toolDelta(map[string]any{"index": i, "id": c.ID, "type": "function", "function": function{Name: c.Name}}))
	}
	for half := range 2 {
		for i, c := range a.turn.Calls {
			r := []rune(c.Arguments)
			part := string(r[half*len(r)/2 : (half+1)*len(r)/2])
			out = append(out, toolDelta(map[string]any{"index": i, "function": function{Arguments: part}}))
		}
	}
	return out
}

func toolDelta(call map[string]any) map[string]any {
	return map[string]any{"tool_calls": []any{call}}
}

func (a *answer) send(choices []any, usage *Usage) {
	chunk := a.object("chat.completion.chunk", choices)
	if a.r.IncludeUsage && !a.turn.NoUsage {
		chunk["usage"] = usage
	}
	b, err := json.Marshal(chunk)
	need(err)
	a.write(string(b))
}

func (a *answer) write(data string) {
	var b strings.Builder
	b.WriteString("data: ")
	b.WriteString(data)
	b.WriteString("\n\n")
	_, _ = io.WriteString(a.w, b.String())
	a.flush()
}

func (a *answer) flush() { _ = http.NewResponseController(a.w).Flush() }
