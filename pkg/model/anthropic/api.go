package anthropic

import (
	"encoding/json"

	"github.com/agentteams/team-server/pkg/model"
)

// messagesRequest is the body of a request to /v1/messages. Its types are those that the provider
// documents, as far as this package uses them.
type messagesRequest struct {
	Model      string      `json:"model"`
	MaxTokens  int64       `json:"max_tokens"`
	System     []textBlock `json:"system,omitempty"`
	Messages   []message   `json:"messages"`
	Tools      []tool      `json:"tools,omitempty"`
	ToolChoice *toolChoice `json:"tool_choice,omitempty"`
	Stream     bool        `json:"stream"`

	Temperature   *float64      `json:"temperature,omitempty"`
	TopP          *float64      `json:"top_p,omitempty"`
	StopSequences []string      `json:"stop_sequences,omitempty"`
	OutputConfig  *outputConfig `json:"output_config,omitempty"`
}

// outputConfig is how much a model reasons, and the schema of the answer, see
// https://platform.claude.com/docs/en/build-with-claude/structured-outputs.
type outputConfig struct {
	Effort string        `json:"effort,omitempty"`
	Format *outputFormat `json:"format,omitempty"`
}

type outputFormat struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
}

// message is a message of the conversation. Its content are the types of blocks below.
type message struct {
	Role    string `json:"role"`
	Content []any  `json:"content"`
}

type textBlock struct {
	Type  string        `json:"type"`
	Text  string        `json:"text"`
	Cache *cacheControl `json:"cache_control,omitempty"`
}

type thinkingBlock struct {
	Type      string `json:"type"`
	Thinking  string `json:"thinking"`
	Signature string `json:"signature"`
}

type redactedThinkingBlock struct {
	Type string `json:"type"`
	Data string `json:"data"`
}

type toolUseBlock struct {
	Type  string                     `json:"type"`
	ID    string                     `json:"id"`
	Name  string                     `json:"name"`
	Input map[string]json.RawMessage `json:"input"`
}

type toolResultBlock struct {
	Type      string `json:"type"`
	ToolUseID string `json:"tool_use_id"`
	Content   []any  `json:"content"`
	IsError   bool   `json:"is_error"`

	Cache *cacheControl `json:"cache_control,omitempty"`
}

// fileBlock is an image or a document.
type fileBlock struct {
	Type   string `json:"type"`
	Source source `json:"source"`
	Title  string `json:"title,omitempty"`

	Cache *cacheControl `json:"cache_control,omitempty"`
}

// source is where a file is: in Data, or at URL.
type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

type tool struct {
	InputSchema json.RawMessage `json:"input_schema"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`

	Cache *cacheControl `json:"cache_control,omitempty"`
}

type toolChoice struct {
	Type            string `json:"type"`
	Name            string `json:"name,omitempty"`
	DisableParallel bool   `json:"disable_parallel_tool_use,omitempty"`
}

// event is an event of a stream. Which fields it has depends on Type.
type event struct {
	Type    string `json:"type"`
	Message struct {
		Model string `json:"model"`
		Usage usage  `json:"usage"`
	} `json:"message"`
	Index        int64 `json:"index"`
	ContentBlock struct {
		Type      string          `json:"type"`
		Text      string          `json:"text"`
		Thinking  string          `json:"thinking"`
		Signature string          `json:"signature"`
		Data      string          `json:"data"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"` // of a whole message; empty in a stream
	} `json:"content_block"`
	Delta struct {
		Text        string `json:"text"`
		Thinking    string `json:"thinking"`
		Signature   string `json:"signature"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
	} `json:"delta"`
	Usage usage `json:"usage"`
}

// usage is a report of the usage; Output is nil if it is missing.
type usage struct {
	Input      model.Count  `json:"input_tokens"`
	CacheRead  model.Count  `json:"cache_read_input_tokens"`
	CacheWrite model.Count  `json:"cache_creation_input_tokens"`
	Output     *model.Count `json:"output_tokens"`
}
