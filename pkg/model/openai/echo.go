package openai

import (
	"encoding/json"
	"slices"
)

// echo is what an endpoint has sent beside the text and the calls of a turn with calls. It is stored in
// Turn.state, and is part of the turn when that is sent back in the same run: reasoning_content is required
// by DeepSeek and Moonshot, extra_content by the API of Gemini for clients of OpenAI, reasoning_details by
// OpenRouter, thinking parts by Mistral.
type echo struct {
	Content json.RawMessage `json:"content,omitempty"` // if it is not the text of the turn
	Message fields          `json:"message,omitempty"`
	Calls   []fields        `json:"calls,omitempty"`
}

func (e *echo) empty() bool {
	return len(e.Content) == 0 && len(e.Message) == 0 && !slices.ContainsFunc(e.Calls, func(f fields) bool { return len(f) > 0 })
}

// ownFields are the fields of messages that are part of a turn, or that describe an answer and are not
// accepted in a request.
var ownFields = []string{"role", "content", "refusal", "tool_calls", "function_call", "images", "audio", "annotations", "name", "token_ids", "logprobs"}

// ownCallFields are the fields of calls that are part of a turn.
var ownCallFields = []string{"index", "id", "type", "function"}

// collector joins fields of the pieces of a stream.
type collector map[string]any

// add adds the fields of a piece that are not in known.
func (c *collector) add(piece fields, known []string) {
	for name, raw := range piece {
		if slices.Contains(known, name) {
			continue
		}
		if v := decode(raw); v != nil {
			if *c == nil {
				*c = collector{}
			}
			mergeObjects(*c, map[string]any{name: v})
		}
	}
}

// fields returns the fields that are not empty.
func (c collector) fields() fields {
	out := fields{}
	for name, v := range c {
		raw, err := json.Marshal(v)
		if err == nil && !slices.Contains([]string{`""`, `[]`, `{}`}, string(raw)) {
			out[name] = raw
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
