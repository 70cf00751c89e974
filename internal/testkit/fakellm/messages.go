package fakellm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/agentteams/team-server/pkg/model/scripted"
)

// messages is Anthropic's messages API.
type messages struct{}

// block is a content block of an entry.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	Title     string          `json:"title"`
	Source    *source         `json:"source"`
}

// decode implements wire.
func (messages) decode(r *Request, body []byte) error {
	r.Body = body
	var c struct {
		Model     string          `json:"model"`
		MaxTokens int64           `json:"max_tokens"`
		System    json.RawMessage `json:"system"`
		Stream    bool            `json:"stream"`
		Messages  []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Name   string          `json:"name"`
			Schema json.RawMessage `json:"input_schema"`
		} `json:"tools"`
		ToolChoice struct{ Type, Name string } `json:"tool_choice"`
	}
	if err := json.Unmarshal(body, &c); err != nil {
		return fmt.Errorf("the body is not a valid request: %w", err)
	}
	r.Auth = r.Header.Get("X-Api-Key")
	r.Model, r.Stream, r.IncludeUsage, r.MaxTokens = c.Model, c.Stream, true, c.MaxTokens
	r.System, _ = content(c.System)
	for i, m := range c.Messages {
		if err := r.blocks(i, m.Role, m.Content); err != nil {
			return err
		}
	}
	for i, t := range c.Tools {
		if !strings.Contains(string(t.Schema), `"object"`) {
			return fmt.Errorf("tools.%d.input_schema.type: Field required", i)
		}
		r.Tools = append(r.Tools, t.Name)
	}
	r.ToolChoice = c.ToolChoice.Name
	switch {
	case len(c.Messages) == 0 || c.Messages[0].Role != "user":
		return fmt.Errorf("messages: first message must use the \"user\" role")
	case c.MaxTokens < 1:
		return fmt.Errorf("max_tokens: Field required")
	case r.ToolChoice != "" && !slices.Contains(r.Tools, r.ToolChoice):
		return fmt.Errorf("tool_choice names an unknown tool")
	case r.unanswered() != "":
		return fmt.Errorf("tool_use ids were found without tool_result blocks: %s", r.unanswered())
	}
	return nil
}

// blocks adds an entry of the conversation. A user's entry may contain several results.
func (r *Request) blocks(i int, role string, raw json.RawMessage) error {
	var list []block
	if err := json.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("messages.%d.content: Input should be a list", i)
	}
	said := Message{Role: role}
	for n, b := range list {
		at := fmt.Sprintf("messages.%d.content.%d", i, n)
		switch b.Type {
		case "text":
			if strings.TrimSpace(b.Text) == "" {
				return fmt.Errorf("%s.text: text content blocks must contain non-whitespace text", at)
			}
			said.Text += b.Text
		case "thinking", "redacted_thinking":
			if role != "assistant" || n > 0 && said.Signature == "" {
				return fmt.Errorf("%s: thinking blocks come first", at)
			}
			said.Signature += b.Signature + b.Data
		case "tool_use":
			if len(b.Input) == 0 || b.Input[0] != '{' {
				return fmt.Errorf("%s.input: Input should be a valid dictionary", at)
			}
			said.Calls = append(said.Calls, Call{ID: b.ID, Name: b.Name, Arguments: string(b.Input)})
		case "tool_result":
			text, _ := content(b.Content)
			var inner []block
			_ = json.Unmarshal(b.Content, &inner) // a text has no files
			files, err := blockFiles(at, inner)
			if err != nil {
				return err
			}
			if err := r.add(i, Message{Role: "tool", Text: text, ToolCallID: b.ToolUseID, Files: files}); err != nil {
				return err
			}
		case "image", "document":
			files, err := blockFiles(at, []block{b})
			if err != nil {
				return err
			}
			if role != "user" {
				return fmt.Errorf("%s: only messages of the user can have files", at)
			}
			said.Files = append(said.Files, files...)
		default:
			return fmt.Errorf("%s: Input tag '%s' is unknown", at, b.Type)
		}
	}
	if said.Text == "" && len(said.Calls) == 0 && slices.ContainsFunc(list, func(b block) bool { return b.Type == "tool_result" }) {
		return nil
	}
	return r.add(i, said)
}

// fail implements wire.
func (messages) fail(w http.ResponseWriter, t Turn) {
	kinds := map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
		413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error",
	}
	kind := kinds[t.Status]
	if kind == "" {
		kind = "api_error"
	}
	writeJSON(w, t.Status, map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": t.Message}, "request_id": "req_1"})
}

// frames implements wire.
func (messages) frames(a *answer) (before, pieces, after []string) {
	usage := a.usage()
	reported := func(out int64) map[string]any {
		if a.turn.NoUsage {
			return map[string]any{"output_tokens": 0}
		}
		tokens := map[string]any{"input_tokens": usage.PromptTokens, "output_tokens": out}
		if d := usage.Details; d != nil { // tokens of the prompt cache do not count as input
			tokens["input_tokens"] = usage.PromptTokens - d.CachedTokens - d.CacheWriteTokens
			tokens["cache_read_input_tokens"], tokens["cache_creation_input_tokens"] = d.CachedTokens, d.CacheWriteTokens
		}
		return tokens
	}
	before = []string{frame("message_start", map[string]any{"type": "message_start", "message": map[string]any{
		"id": a.id, "type": "message", "role": "assistant", "model": a.r.Model, "content": []any{}, "stop_reason": nil, "usage": reported(1),
	}}), frame("ping", map[string]any{"type": "ping"})}
	b := &blockFrames{}
	if a.turn.Reasoning != "" || a.turn.Signature != "" {
		b.open(map[string]any{"type": "thinking", "thinking": "", "signature": ""})
		b.delta(map[string]any{"type": "thinking_delta", "thinking": a.turn.Reasoning})
		b.delta(map[string]any{"type": "signature_delta", "signature": a.turn.Signature})
		b.close()
	}
	text := scripted.Answer{Text: a.turn.Text, Chunks: a.turn.Chunks}
	for i, piece := range text.Pieces() {
		if i == 0 {
			b.open(map[string]any{"type": "text", "text": ""})
		}
		b.delta(map[string]any{"type": "text_delta", "text": piece})
	}
	b.close()
	for _, c := range a.turn.Calls {
		b.open(map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": map[string]any{}})
		for _, half := range halves(c.Arguments) {
			b.delta(map[string]any{"type": "input_json_delta", "partial_json": half})
		}
		b.close()
	}
	reason := "end_turn"
	if len(a.turn.Calls) > 0 {
		reason = "tool_use"
	}
	return before, b.pieces, []string{
		b.pending + frame("message_delta", map[string]any{
			"type": "message_delta", "delta": map[string]any{"stop_reason": cmp.Or(a.turn.Finish, reason)}, "usage": reported(usage.CompletionTokens),
		}),
		frame("message_stop", map[string]any{"type": "message_stop"}),
	}
}

// blockFrames collects the events of blocks. Only deltas count as pieces; the events that open and
// close a block are sent with the next piece.
type blockFrames struct {
	pieces  []string
	pending string
	index   int
	opened  bool
}

func (b *blockFrames) open(content map[string]any) {
	b.opened = true
	b.pending += frame("content_block_start", map[string]any{"type": "content_block_start", "index": b.index, "content_block": content})
}

func (b *blockFrames) delta(delta map[string]any) {
	b.pieces = append(b.pieces, b.pending+frame("content_block_delta", map[string]any{"type": "content_block_delta", "index": b.index, "delta": delta}))
	b.pending = ""
}

func (b *blockFrames) close() {
	if !b.opened {
		return
	}
	b.pending += frame("content_block_stop", map[string]any{"type": "content_block_stop", "index": b.index})
	b.index, b.opened = b.index+1, false
}
