package anthropic

import "encoding/json"

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
}

// message is a message of the conversation. Its content are the types of blocks below.
type message struct {
	Role    string `json:"role"`
	Content []any  `json:"content"`
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
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
	Type  string         `json:"type"`
	ID    string         `json:"id"`
	Name  string         `json:"name"`
	Input map[string]any `json:"input"`
}

type toolResultBlock struct {
	Type      string `json:"type"`
	ToolUseID string `json:"tool_use_id"`
	Content   []any  `json:"content"`
	IsError   bool   `json:"is_error"`
}

// fileBlock is an image or a document.
type fileBlock struct {
	Type   string `json:"type"`
	Source source `json:"source"`
	Title  string `json:"title,omitempty"`
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
}

type toolChoice struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

// event is an event of a stream. Which fields it has depends on Type.
type event struct {
	Type    string         `json:"type"`
	Error   *reportedError `json:"error"`
	Message struct {
		Model string `json:"model"`
		Usage usage  `json:"usage"`
	} `json:"message"`
	Index        int64 `json:"index"`
	ContentBlock struct {
		Type      string `json:"type"`
		Text      string `json:"text"`
		Thinking  string `json:"thinking"`
		Signature string `json:"signature"`
		Data      string `json:"data"`
		ID        string `json:"id"`
		Name      string `json:"name"`
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

// usage is a report of the usage. "" means that a number is missing. Some gateways send fractions or
// texts, which json.Number accepts.
type usage struct {
	Input      json.Number `json:"input_tokens"`
	CacheRead  json.Number `json:"cache_read_input_tokens"`
	CacheWrite json.Number `json:"cache_creation_input_tokens"`
	Output     json.Number `json:"output_tokens"`
}

// tokens returns a number of a report; 0 if it is missing.
func tokens(n json.Number) int64 {
	f, err := n.Float64()
	if err != nil {
		return 0
	}
	return int64(max(0, min(f, 1<<53)))
}

// reportedError is an error that the provider reports.
type reportedError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func (r *reportedError) Error() string { return r.Type + ": " + r.Message }
