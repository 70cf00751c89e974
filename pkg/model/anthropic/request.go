package anthropic

import (
	"encoding/json"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// request converts a request, without what the endpoint has refused.
func (m *Model) request(req *agent.ModelRequest, without map[string]bool) *messagesRequest {
	s := m.config.Settings
	if s == nil {
		s = &teamv1.ModelSettings{}
	}
	r := &messagesRequest{
		Model: m.config.Name, MaxTokens: m.maxOutput(req), Stream: true,
		Temperature: s.Temperature, TopP: s.TopP, StopSequences: s.GetStop(), OutputConfig: format(req, s, without),
	}
	if req.Instructions != "" {
		r.System = []textBlock{text(req.Instructions)}
	}
	for _, msg := range req.Messages {
		r.Messages = m.add(r.Messages, msg)
	}
	for _, t := range req.Tools {
		r.Tools = append(r.Tools, declaration(t))
	}
	if !without[caching] {
		r.caches(req)
	}
	one := s.ParallelToolCalls != nil && !s.GetParallelToolCalls()
	switch {
	case req.Force != "":
		r.ToolChoice = &toolChoice{"tool", req.Force, one}
	case one && len(req.Tools) > 0:
		r.ToolChoice = &toolChoice{Type: "auto", DisableParallel: true}
	}
	return r
}

// format returns the settings of the output; nil if there are none.
func format(req *agent.ModelRequest, s *teamv1.ModelSettings, without map[string]bool) *outputConfig {
	c := &outputConfig{Effort: s.GetReasoningEffort()}
	if len(req.Schema) > 0 && !without[string(req.Schema)] {
		c.Format = &outputFormat{"json_schema", req.Schema}
	}
	if c.Effort == "" && c.Format == nil {
		return nil
	}
	return c
}

// add appends a message. Consecutive messages of the same role are merged: the results of calls
// must be in one message, before the text of the user. The first message must be the user's.
func (m *Model) add(to []message, msg agent.ModelMessage) []message {
	role := "user"
	if msg.Role == agent.RoleAssistant {
		role = "assistant"
	}
	if len(to) == 0 && role == "assistant" {
		to = append(to, message{"user", []any{text(model.Nothing)}})
	}
	if n := len(to); n > 0 && to[n-1].Role == role {
		to[n-1].Content = append(to[n-1].Content, m.content(msg)...)
		return to
	}
	return append(to, message{role, m.content(msg)})
}

// content returns the blocks of a message.
func (m *Model) content(msg agent.ModelMessage) []any {
	switch {
	case msg.Role == agent.RoleTool:
		return []any{toolResult(msg)}
	case msg.Role == agent.RoleUser && msg.Parts != nil:
		return contents(msg.Parts)
	}
	var blocks []*block
	if msg.Role != agent.RoleAssistant || !model.UnpackState(msg.State, provider, m.config.Name, &blocks) {
		blocks = []*block{{Type: "text", Text: msg.Text}}
		for _, c := range msg.ToolCalls {
			blocks = append(blocks, &block{Type: "tool_use", ID: c.GetId(), Name: c.GetName(), Input: c.GetArguments()})
		}
	}
	var out []any
	for _, b := range blocks {
		if c, ok := b.content(); ok {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		out = append(out, text(model.Nothing))
	}
	return out
}

// declaration converts a tool. The schema is passed on unchanged.
func declaration(t agent.ToolSpec) tool {
	schema := t.Parameters
	if len(schema) == 0 {
		schema = json.RawMessage(`{"properties":{},"type":"object"}`)
	}
	return tool{InputSchema: schema, Name: t.Name, Description: t.Description}
}
