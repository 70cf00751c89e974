package openai

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/agentteams/team-server/pkg/model"
)

// request is the body of a request to /chat/completions, with the fields that this package uses, see
// https://platform.openai.com/docs/api-reference/chat/create.
type request struct {
	Model               string          `json:"model"`
	Messages            []*message      `json:"messages"`
	Tools               []tool          `json:"tools,omitempty"`
	ToolChoice          *toolChoice     `json:"tool_choice,omitempty"`
	ResponseFormat      *responseFormat `json:"response_format,omitempty"`
	MaxTokens           int64           `json:"max_tokens,omitempty"`
	MaxCompletionTokens int64           `json:"max_completion_tokens,omitempty"`
	Temperature         *float64        `json:"temperature,omitempty"`
	TopP                *float64        `json:"top_p,omitempty"`
	Seed                *int64          `json:"seed,omitempty"`
	Stop                []string        `json:"stop,omitempty"`
	ReasoningEffort     string          `json:"reasoning_effort,omitempty"`
	ParallelToolCalls   *bool           `json:"parallel_tool_calls,omitempty"`
	Stream              bool            `json:"stream"`
	StreamOptions       *streamOptions  `json:"stream_options,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// message is a message of the conversation.
type message struct {
	Role       string     `json:"role"`
	Content    any        `json:"content,omitempty"` // a string, a list of parts, or what the endpoint sent
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	more       fields
}

// MarshalJSON implements json.Marshaler.
func (m *message) MarshalJSON() ([]byte, error) {
	type plain message
	return m.more.join((*plain)(m))
}

type toolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function functionCall `json:"function"`
	more     fields
}

// MarshalJSON implements json.Marshaler.
func (c toolCall) MarshalJSON() ([]byte, error) {
	type plain toolCall
	return c.more.join(plain(c))
}

type functionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type tool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
}

type toolChoice struct {
	Type     string `json:"type"`
	Function struct {
		Name string `json:"name"`
	} `json:"function"`
}

// responseFormat is a JSON schema in the form of OpenAI, or in that of llama.cpp, Together and Fireworks,
// which have it beside the type.
type responseFormat struct {
	Type       string          `json:"type"`
	JSONSchema *namedSchema    `json:"json_schema,omitempty"`
	Schema     json.RawMessage `json:"schema,omitempty"`
}

type namedSchema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
}

// chunk is an event of a stream, or a whole answer. What endpoints send in several forms is decoded later;
// fields of another type than expected are ignored. Sources: the chunk of OpenAI,
// https://platform.openai.com/docs/api-reference/chat/streaming; usage within a choice of Moonshot; error
// within a choice of OpenRouter.
type chunk struct {
	Object  text            `json:"object"`
	Model   text            `json:"model"`
	Error   json.RawMessage `json:"error"`
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	// Codes of MiniMax and Baidu, which are 0 in answers.
	BaseResp  json.RawMessage `json:"base_resp"`
	ErrorCode json.RawMessage `json:"error_code"`
}

type choice struct {
	Index        model.Count     `json:"index"`
	Delta        fields          `json:"delta"`
	Message      fields          `json:"message"` // of a whole answer
	FinishReason text            `json:"finish_reason"`
	Usage        *usage          `json:"usage"`
	Error        json.RawMessage `json:"error"`
}

// usage is a report of the usage. Sources: OpenAI; prompt_cache_hit_tokens of DeepSeek, cached_tokens of
// Moonshot.
type usage struct {
	Prompt       model.Count `json:"prompt_tokens"`
	Completion   model.Count `json:"completion_tokens"`
	Total        model.Count `json:"total_tokens"`
	CacheHit     model.Count `json:"prompt_cache_hit_tokens"`
	Cached       model.Count `json:"cached_tokens"`
	PromptDetail struct {
		Cached model.Count `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetail struct {
		Reasoning model.Count `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// text is a string in JSON; any other value is "".
type text string

// UnmarshalJSON implements json.Unmarshaler. It returns no error.
func (t *text) UnmarshalJSON(b []byte) error {
	var s string
	_ = json.Unmarshal(b, &s) // anything else is ""
	*t = text(s)
	return nil
}

// fields are the fields of a JSON object.
type fields map[string]json.RawMessage

// UnmarshalJSON implements json.Unmarshaler. It returns no error: anything but an object has no fields.
func (f *fields) UnmarshalJSON(b []byte) error {
	var object map[string]json.RawMessage
	if json.Unmarshal(b, &object) == nil {
		*f = object
	}
	return nil
}

// text returns a field that is a string, or "".
func (f fields) text(name string) string {
	var t text
	if raw, ok := f[name]; ok {
		_ = t.UnmarshalJSON(raw)
	}
	return string(t)
}

// join returns the JSON of an object with further fields, in the order of their names.
func (f fields) join(object any) ([]byte, error) {
	b, err := json.Marshal(object)
	if err != nil || len(f) == 0 {
		return b, err
	}
	b = b[:len(b)-1]
	for _, name := range slices.Sorted(maps.Keys(f)) {
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		b = append(append(append(append(b, ','), key...), ':'), f[name]...)
	}
	return append(b, '}'), nil
}
