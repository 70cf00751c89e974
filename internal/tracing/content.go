package tracing

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

const (
	// maxText is the maximum size of one text of a span, in bytes; the rest is cut off.
	maxText = 1 << 10
	// maxPrompt is the maximum size of all texts of a prompt; the oldest messages are left out.
	maxPrompt = 4 << 10
)

// content makes attributes of texts. A nil *content makes none.
type content struct{ secrets func() []secret.Secret }

// text returns a text as it is exported: without secrets, and cut after maxText.
func (c *content) text(s string) string {
	s = strings.ToValidUTF8(secret.Hide(s, c.secrets()...), "\uFFFD") // an attribute must be valid
	if len(s) <= maxText {
		return s
	}
	end := maxText
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// message and part have the form of the conventions for messages.
type message struct {
	Role  string `json:"role"`
	Parts []part `json:"parts"`
}

type part struct {
	Type      string `json:"type"`
	Content   string `json:"content,omitempty"`
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments,omitempty"`
	Result    string `json:"result,omitempty"`
}

// written returns parts or messages as an attribute.
func written(key attribute.Key, v any) []attribute.KeyValue {
	b, err := json.Marshal(v)
	if err != nil { // they have only texts
		return nil
	}
	return []attribute.KeyValue{key.String(string(b))}
}

// message returns a message as an attribute; none if m is nil.
func (c *content) message(key attribute.Key, role string, m *a2av1.Message) []attribute.KeyValue {
	if c == nil || m == nil {
		return nil
	}
	return written(key, []message{{Role: role, Parts: []part{{Type: "text", Content: c.text(agent.Text(m))}}}})
}

// given returns what an attempt is given.
func (c *content) given(g agent.Given) []attribute.KeyValue {
	switch {
	case c == nil:
		return nil
	case g.Prompt != nil:
		return c.prompt(g.Prompt)
	case g.Arguments != "":
		return []attribute.KeyValue{toolArgumentsKey.String(c.text(g.Arguments))}
	}
	return c.message(inputMessagesKey, string(agent.RoleUser), g.Message)
}

// prompt returns a request to a model: the newest messages that fit into maxPrompt, and the instructions.
func (c *content) prompt(p *agent.ModelRequest) []attribute.KeyValue {
	var list []message
	size := 0
	for i := len(p.Messages) - 1; i >= 0; i-- {
		m := c.modelMessage(&p.Messages[i])
		for _, of := range m.Parts {
			size += len(of.Content) + len(of.Arguments) + len(of.Result)
		}
		if size > maxPrompt && len(list) > 0 {
			break
		}
		list = append(list, m)
	}
	slices.Reverse(list)
	attrs := written(inputMessagesKey, list)
	if p.Instructions != "" {
		attrs = append(attrs, written(instructionsKey, []part{{Type: "text", Content: c.text(p.Instructions)}})...)
	}
	return attrs
}

func (c *content) modelMessage(m *agent.ModelMessage) message {
	if m.Role == agent.RoleTool {
		return message{string(m.Role), []part{{Type: "tool_call_response", ID: c.text(m.CallID), Result: c.text(m.Text)}}}
	}
	return message{string(m.Role), c.parts(m.Text, m.ToolCalls)}
}

// parts returns a text and the first calls of tools with it.
func (c *content) parts(text string, calls []*teamv1.ToolCall) []part {
	list := []part{}
	if text != "" {
		list = append(list, part{Type: "text", Content: c.text(text)})
	}
	for _, call := range calls[:min(len(calls), maxPrompt/maxText)] {
		list = append(list, part{Type: "tool_call", ID: c.text(call.GetId()), Name: c.text(call.GetName()), Arguments: c.text(call.GetArguments())})
	}
	return list
}

// result returns how a step or a run has ended. reply is its message, which may be recorded elsewhere.
func (c *content) result(e *teamv1.Ended, reply *a2av1.Message) []attribute.KeyValue {
	switch {
	case c == nil:
		return nil
	case e.GetTurn() != nil:
		return written(outputMessagesKey, []message{{Role: string(agent.RoleAssistant), Parts: c.parts(e.GetTurn().GetText(), e.GetTurn().GetToolCalls())}})
	case e.GetTool() != nil:
		return []attribute.KeyValue{toolResultKey.String(c.text(e.GetTool().GetText()))}
	}
	return c.message(outputMessagesKey, string(agent.RoleAssistant), reply)
}
