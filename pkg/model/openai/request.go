package openai

import (
	"encoding/json"
	"regexp"
	"strings"

	openai "github.com/sashabaranov/go-openai"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// request converts a request.
func (m *Model) request(req *agent.ModelRequest) openai.ChatCompletionRequest {
	r := openai.ChatCompletionRequest{
		Model: m.config.Name, Stream: true, StreamOptions: &openai.StreamOptions{IncludeUsage: true},
		Messages: make([]openai.ChatCompletionMessage, 0, len(req.Messages)+1),
	}
	if n := int(m.config.Output(req.MaxOutput)); m.completionTokens() {
		r.MaxCompletionTokens = n
	} else {
		r.MaxTokens = n //nolint:staticcheck // SA1019: many endpoints support only this name
	}
	if req.Instructions != "" {
		r.Messages = append(r.Messages, openai.ChatCompletionMessage{Role: openai.ChatMessageRoleSystem, Content: req.Instructions})
	}
	for _, msg := range req.Messages {
		r.Messages = append(r.Messages, message(msg))
	}
	for _, t := range req.Tools {
		r.Tools = append(r.Tools, tool(t))
	}
	if req.Force != "" {
		r.ToolChoice = openai.ToolChoice{Type: openai.ToolTypeFunction, Function: openai.ToolFunction{Name: req.Force}}
	}
	return r
}

// completionTokens reports whether the limit is sent as max_completion_tokens. OpenAI requires
// that, also for its models behind a gateway. All other endpoints support max_tokens, and some of
// them only that.
func (m *Model) completionTokens() bool {
	name := m.config.Name[strings.LastIndex(m.config.Name, "/")+1:]
	return strings.HasPrefix(m.config.BaseURL, DefaultBaseURL) || reasoning.MatchString(name)
}

// reasoning matches the models of OpenAI that reject max_tokens.
var reasoning = regexp.MustCompile(`^(o\d|gpt-[5-9])`)

func message(m agent.ModelMessage) openai.ChatCompletionMessage {
	out := openai.ChatCompletionMessage{Role: string(m.Role), Content: m.Text, ToolCallID: m.CallID}
	for _, c := range m.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, toolCall(c))
	}
	if out.Content == "" && len(out.ToolCalls) == 0 {
		out.Content = model.Nothing
	}
	return out
}

func toolCall(c *teamv1.ToolCall) openai.ToolCall {
	arguments := c.GetArguments()
	if arguments == "" {
		arguments = "{}"
	}
	return openai.ToolCall{
		ID: c.GetId(), Type: openai.ToolTypeFunction,
		Function: openai.FunctionCall{Name: c.GetName(), Arguments: arguments},
	}
}

func tool(t agent.ToolSpec) openai.Tool {
	parameters := t.Parameters
	if len(parameters) == 0 {
		parameters = json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return openai.Tool{Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{
		Name: t.Name, Description: t.Description, Parameters: parameters,
	}}
}
