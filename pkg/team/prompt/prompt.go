// Package prompt has what the prompts of schedulers and judges share: messages as text for models,
// joined results, and the arguments of tool calls.
package prompt

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// ReadTool is the name of the tool that a model calls to read more of a long result.
const ReadTool = "read_result"

// Task returns a task as prompt messages: the brief of the collaboration, unless it is nil, then
// the input.
func Task(input *a2av1.Message, brief *teamv1.Brief) []agent.ModelMessage {
	task := User(input)
	if brief == nil {
		return []agent.ModelMessage{task}
	}
	return []agent.ModelMessage{{Role: agent.RoleUser, Text: agent.BriefText(brief)}, task}
}

// Said returns a message of the conversation as a prompt message.
func Said(m *a2av1.Message) agent.ModelMessage {
	if m.GetRole() == a2av1.Role_ROLE_AGENT {
		return agent.ModelMessage{Role: agent.RoleAssistant, Text: Text(m)}
	}
	return User(m)
}

// Text returns a message as text for a model, with a line for each file. Long results in it are cut.
func Text(m *a2av1.Message) string { return agent.Prompt(withoutLong(m)) }

// withoutLong returns a message with its long results cut; m itself if there are none.
func withoutLong(m *a2av1.Message) *a2av1.Message {
	if !slices.ContainsFunc(m.GetParts(), func(p *a2av1.Part) bool { return agent.ResultName(p) != "" }) {
		return m
	}
	shown := &a2av1.Message{}
	for _, p := range m.GetParts() {
		if name := agent.ResultName(p); name != "" {
			p = &a2av1.Part{Content: &a2av1.Part_Text{Text: Cut(p.GetText(), name)}}
		}
		shown.Parts = append(shown.Parts, p)
	}
	return shown
}

// Corrected returns an invalid answer of a model, followed by text, which says what is wrong with
// it. Every tool call of the turn gets text as its answer, because providers reject a conversation
// with unanswered calls.
func Corrected(turn *teamv1.Turn, text string) []agent.ModelMessage {
	said := agent.ModelMessage{Role: agent.RoleAssistant, Text: turn.GetText(), ToolCalls: turn.GetToolCalls()}
	if len(turn.GetToolCalls()) == 0 {
		if said.Text == "" {
			return []agent.ModelMessage{{Role: agent.RoleUser, Text: text}}
		}
		return []agent.ModelMessage{said, {Role: agent.RoleUser, Text: text}}
	}
	messages := []agent.ModelMessage{said}
	for _, call := range turn.GetToolCalls() {
		messages = append(messages, agent.ModelMessage{Role: agent.RoleTool, CallID: call.GetId(), Tool: call.GetName(), Text: text})
	}
	return messages
}

// Cut shortens the text of a long result for a model that can call ReadTool, and says where the
// rest is. name is the result's name in ReadTool's arguments.
func Cut(text, name string) string {
	return CutTo(text, agent.MaxResult, name)
}

// CutTo is like Cut, for results that may have at most size bytes.
func CutTo(text string, size int, name string) string {
	if len(text) <= size {
		return text
	}
	shown := agent.Excerpt(text, size)
	return fmt.Sprintf("%s\n\n[the first %d of %d bytes. The whole is result %q: read on with %s from offset %d]",
		shown, len(shown), len(text), name, ReadTool, len(shown))
}

// ToolText returns at most size bytes of the result of a tool for a model that has not called it. Errors are marked.
func ToolText(r *teamv1.ToolResult, size int) string {
	text := agent.Excerpt(r.GetText(), size)
	if r.GetIsError() {
		return FailedCall + text
	}
	return text
}

// FailedCall comes before the error of a tool.
const FailedCall = "failed: "

// WasEmpty asks a model once more that has ended with an empty answer, in a turn of the name EmptyTurn.
const (
	WasEmpty  = "Your last message was empty. Answer the request now, in words."
	EmptyTurn = "empty"
)

// Size returns the size of the texts of a request, in bytes.
func Size(req *agent.ModelRequest) int {
	n := len(req.Instructions) + len(req.Schema)
	for _, m := range req.Messages {
		n += len(m.Text) + len(m.State)
		for _, c := range m.ToolCalls {
			n += len(c.GetName()) + len(c.GetArguments())
		}
	}
	for _, t := range req.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Parameters)
	}
	return n
}

// Excerpt cuts a long result for a model that cannot read the rest.
func Excerpt(text string) string {
	if len(text) <= agent.MaxResult {
		return text
	}
	shown := agent.Excerpt(text, agent.MaxResult)
	return fmt.Sprintf("%s\n\n[the first %d of %d bytes]", shown, len(shown), len(text))
}

// Member writes the description of a member for the model that gives it work: id, role, what it
// does, and its skills.
func Member(b *strings.Builder, id, role, what string, skills []*teamv1.Skill) {
	b.WriteString("- " + id)
	if role != "" {
		b.WriteString(" (" + role + ")")
	}
	if what != "" {
		b.WriteString(": " + what)
	}
	b.WriteByte('\n')
	for _, skill := range skills {
		fmt.Fprintf(b, "  - skill %s: %s\n", skill.GetName(), skill.GetDescription())
	}
}

// HandedOver returns the key by which messages to members are compared: the text or, if the message
// has other content, its encoding.
func HandedOver(m *a2av1.Message) string {
	for _, p := range m.GetParts() {
		if _, ok := p.GetContent().(*a2av1.Part_Text); !ok {
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(&a2av1.Message{Parts: m.GetParts()})
			if err == nil {
				return string(b)
			}
		}
	}
	return strings.TrimSpace(agent.Text(m))
}
