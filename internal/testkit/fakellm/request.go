package fakellm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Request is a request that the server received, and what became of it.
type Request struct {
	// N is the position among all requests of the server in order of arrival, from 1.
	N int
	// Model is the requested model.
	Model string
	// Path is the path of the URL, Auth the value of the header with the API key, Header all headers.
	Path   string
	Auth   string
	Header http.Header
	// Body is the request body.
	Body []byte
	// System is the system text; several system messages are joined by newlines.
	System string
	// Messages is the conversation without system messages.
	Messages []Message
	// Tools are the names of the tools. ToolChoice is the name of the tool that must be called, or
	// the value that was sent.
	Tools      []string
	ToolChoice string
	// MaxTokens is the maximum number of tokens of the answer; 0 if the request has none.
	MaxTokens int64
	// Stream reports that the response is to be streamed, IncludeUsage that it is to report usage.
	Stream, IncludeUsage bool

	// Arrived and Finished are times; Finished is zero while the request is being answered.
	Arrived, Finished time.Time
	// Status is the HTTP status of the response; 0 before it is known.
	Status int
	// Billed is the usage that a real provider would charge for, even if the response reported less or
	// nothing. It is set when the response has finished.
	Billed Usage
	// Gone reports that the client disconnected, or the server was closed, before the response was
	// complete.
	Gone bool
}

// Message is an entry of the conversation.
type Message struct {
	Role       string
	Text       string
	Calls      []Call
	ToolCallID string
	// Signature is the signature of the reasoning in an assistant's entry.
	Signature string
	// Files are the files of the entry, in order.
	Files []File
}

// Last returns the text of the last message.
func (r *Request) Last() string {
	if len(r.Messages) == 0 {
		return ""
	}
	return r.Messages[len(r.Messages)-1].Text
}

// completion is the body of a chat completions request.
type completion struct {
	Model    string `json:"model"`
	Messages []struct {
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		ToolCallID string          `json:"tool_call_id"`
		ToolCalls  []struct {
			ID       string   `json:"id"`
			Type     string   `json:"type"`
			Function function `json:"function"`
		} `json:"tool_calls"`
	} `json:"messages"`
	Tools []struct {
		Type     string `json:"type"`
		Function struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
	ToolChoice    json.RawMessage `json:"tool_choice"`
	MaxTokens     int64           `json:"max_tokens"`
	MaxCompletion int64           `json:"max_completion_tokens"`
	Stream        bool            `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type function struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// decode implements wire.
func (chatCompletions) decode(r *Request, body []byte) error {
	r.Body = body
	var c completion
	if err := json.Unmarshal(body, &c); err != nil {
		return fmt.Errorf("the body is not a valid request: %w", err)
	}
	r.Model, r.Stream, r.IncludeUsage = c.Model, c.Stream, c.StreamOptions.IncludeUsage
	r.MaxTokens = max(c.MaxTokens, c.MaxCompletion)
	for i := range c.Messages {
		if err := r.message(&c, i); err != nil {
			return err
		}
	}
	for i, t := range c.Tools {
		if t.Type != "function" || t.Function.Name == "" {
			return fmt.Errorf("tools[%d] is not a function with a name", i)
		}
		if p := t.Function.Parameters; len(p) > 0 && p[0] != '{' {
			return fmt.Errorf("tools[%d].function.parameters is not an object", i)
		}
		r.Tools = append(r.Tools, t.Function.Name)
	}
	if len(c.Messages) == 0 {
		return fmt.Errorf("messages is empty")
	}
	return r.choose(c.ToolChoice)
}

func (r *Request) message(c *completion, i int) error {
	m := &c.Messages[i]
	text, ok := content(m.Content)
	files, err := contentFiles(m.Content)
	if err != nil {
		return fmt.Errorf("messages[%d].content%w", i, err)
	}
	out := Message{Role: m.Role, Text: text, ToolCallID: m.ToolCallID, Files: files}
	for _, call := range m.ToolCalls {
		out.Calls = append(out.Calls, Call{ID: call.ID, Name: call.Function.Name, Arguments: call.Function.Arguments})
	}
	switch {
	case len(files) > 0 && m.Role != "user":
		return fmt.Errorf("messages[%d].content: only messages of the user can have files", i)
	case !ok && (m.Role != "assistant" || len(out.Calls) == 0):
		return fmt.Errorf("messages[%d].content is missing", i)
	case m.Role == "system", m.Role == "developer":
		r.System = strings.TrimPrefix(r.System+"\n"+text, "\n")
		return nil
	}
	return r.add(i, out)
}

// add appends an entry to the conversation, or returns an error if it does not fit there.
func (r *Request) add(i int, m Message) error {
	switch {
	case m.Role == "tool" && !r.called(m.ToolCallID):
		return fmt.Errorf("messages[%d] answers no tool call of the message before it", i)
	case m.Role != "user" && m.Role != "assistant" && m.Role != "tool":
		return fmt.Errorf("messages[%d].role %q is unknown", i, m.Role)
	case m.Role != "tool" && r.unanswered() != "":
		return fmt.Errorf("messages[%d]: tool call %s has no answer", i, r.unanswered())
	}
	r.Messages = append(r.Messages, m)
	return nil
}

// called reports whether the last turn made the call.
func (r *Request) called(id string) bool {
	for _, m := range slices.Backward(r.Messages) {
		if m.Role != "tool" {
			return slices.ContainsFunc(m.Calls, func(c Call) bool { return c.ID == id })
		}
	}
	return false
}

// unanswered returns the id of a call of the last turn without a result, or "".
func (r *Request) unanswered() string {
	answered := map[string]bool{}
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == "tool" {
			answered[m.ToolCallID] = true
			continue
		}
		for _, c := range m.Calls {
			if !answered[c.ID] {
				return c.ID
			}
		}
		break
	}
	return ""
}

func (r *Request) choose(raw json.RawMessage) error {
	if len(raw) == 0 || json.Unmarshal(raw, &r.ToolChoice) == nil {
		return nil
	}
	var choice struct {
		Function function `json:"function"`
	}
	if err := json.Unmarshal(raw, &choice); err != nil || !slices.Contains(r.Tools, choice.Function.Name) {
		return fmt.Errorf("tool_choice names an unknown tool")
	}
	r.ToolChoice = choice.Function.Name
	return nil
}

// content returns a text, or the joined texts of a list of parts.
func content(raw json.RawMessage) (string, bool) {
	var s *string
	if json.Unmarshal(raw, &s) == nil {
		if s == nil {
			return "", false
		}
		return *s, true
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return "", false
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String(), true
}

// modelRequest converts the request for a script; the model's name is the id of the agent.
func (r *Request) modelRequest() *agent.ModelRequest {
	req := &agent.ModelRequest{Agent: r.Model, Instructions: r.System}
	for _, m := range r.Messages {
		req.Messages = append(req.Messages, agent.ModelMessage{
			Role: agent.ModelRole(m.Role), Text: m.Text, ToolCalls: toolCalls(m.Calls), CallID: m.ToolCallID,
		})
	}
	for _, t := range r.Tools {
		req.Tools = append(req.Tools, agent.ToolSpec{Name: t})
	}
	return req
}

func toolCalls(calls []Call) []*teamv1.ToolCall {
	var out []*teamv1.ToolCall
	for _, c := range calls {
		out = append(out, &teamv1.ToolCall{Id: c.ID, Name: c.Name, Arguments: c.Arguments})
	}
	return out
}
