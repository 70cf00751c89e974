package anthropic

import (
	"cmp"

	anthropic "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// request converts a request.
func (m *Model) request(req *agent.ModelRequest) anthropic.MessageNewParams {
	p := anthropic.MessageNewParams{
		Model:     anthropic.Model(m.config.Name),
		MaxTokens: cmp.Or(m.config.Output(req.MaxOutput), DefaultMaxOutput),
	}
	if req.Instructions != "" {
		p.System = []anthropic.TextBlockParam{{Text: model.Text(req.Instructions)}}
	}
	for _, msg := range req.Messages {
		p.Messages = m.add(p.Messages, msg)
	}
	for _, t := range req.Tools {
		p.Tools = append(p.Tools, tool(t))
	}
	if req.Force != "" {
		p.ToolChoice = anthropic.ToolChoiceParamOfTool(req.Force)
	}
	return p
}

// add appends a message. Consecutive messages of the same role are merged: the results of calls
// must be in one message, before the text of the user. The first message must be the user's.
func (m *Model) add(to []anthropic.MessageParam, msg agent.ModelMessage) []anthropic.MessageParam {
	role := anthropic.MessageParamRoleUser
	if msg.Role == agent.RoleAssistant {
		role = anthropic.MessageParamRoleAssistant
	}
	if len(to) == 0 && role == anthropic.MessageParamRoleAssistant {
		to = append(to, anthropic.NewUserMessage(anthropic.NewTextBlock(model.Nothing)))
	}
	if n := len(to); n > 0 && to[n-1].Role == role {
		to[n-1].Content = append(to[n-1].Content, m.content(msg)...)
		return to
	}
	return append(to, anthropic.MessageParam{Role: role, Content: m.content(msg)})
}

// content returns the blocks of a message.
func (m *Model) content(msg agent.ModelMessage) []anthropic.ContentBlockParamUnion {
	switch {
	case msg.Role == agent.RoleTool:
		return []anthropic.ContentBlockParamUnion{toolResult(msg)}
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
	var out []anthropic.ContentBlockParamUnion
	for _, b := range blocks {
		if p, ok := b.param(); ok {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		out = append(out, anthropic.NewTextBlock(model.Nothing))
	}
	return out
}

// tool converts a tool. The schema is passed on unchanged.
func tool(t agent.ToolSpec) anthropic.ToolUnionParam {
	schema := anthropic.ToolInputSchemaParam{Properties: map[string]any{}}
	if len(t.Parameters) > 0 {
		schema = param.Override[anthropic.ToolInputSchemaParam](t.Parameters)
	}
	out := anthropic.ToolUnionParamOfTool(schema, t.Name)
	if t.Description != "" {
		out.OfTool.Description = anthropic.String(t.Description)
	}
	return out
}
