package agent

import (
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// Text returns the texts of the text parts of m, joined by newlines. Other parts are ignored.
func Text(m *a2av1.Message) string {
	parts := m.GetParts()
	if len(parts) == 1 {
		return parts[0].GetText()
	}
	var texts []string
	for _, p := range parts {
		if t := p.GetText(); t != "" {
			texts = append(texts, t)
		}
	}
	return strings.Join(texts, "\n")
}

// NewMessage returns a message with the role of an agent and one text part. It has no id; see
// Run.Completed.
func NewMessage(text string) *a2av1.Message {
	return &a2av1.Message{Role: a2av1.Role_ROLE_AGENT, Parts: TextParts(text)}
}

// UserMessage returns a message with this id, the role of a user and one text part.
func UserMessage(id, text string) *a2av1.Message {
	return &a2av1.Message{MessageId: id, Role: a2av1.Role_ROLE_USER, Parts: TextParts(text)}
}

// TextParts returns a list with one text part.
func TextParts(text string) []*a2av1.Part {
	return []*a2av1.Part{{Content: &a2av1.Part_Text{Text: text}}}
}

// DataPart returns a part with a value of JSON.
func DataPart(v *structpb.Value) *a2av1.Part {
	return &a2av1.Part{Content: &a2av1.Part_Data{Data: v}, MediaType: "application/json"}
}

// Completed returns m with the fields that agents may leave empty: a message id, derived from the
// scope, and the role of an agent. It returns m itself if nothing is missing, and else a copy.
func (r *Run) Completed(scope string, m *a2av1.Message) *a2av1.Message {
	if m.GetMessageId() != "" && m.GetRole() == a2av1.Role_ROLE_AGENT {
		return m
	}
	id := m.GetMessageId()
	if id == "" {
		id = r.ID(scope, "reply", 1)
	}
	return &a2av1.Message{
		MessageId: id, ContextId: m.GetContextId(), TaskId: m.GetTaskId(), Role: a2av1.Role_ROLE_AGENT, Parts: m.GetParts(),
		Metadata: m.GetMetadata(), Extensions: m.GetExtensions(), ReferenceTaskIds: m.GetReferenceTaskIds(),
	}
}

// MaxText is the maximum length in bytes of a text that is made by inserting others.
const MaxText = 4 << 20

// TextTooLong returns the error for a text that would have more than MaxText bytes. what names the text.
func TextTooLong(what string, length int) *Error {
	return Errorf(CodeResourceExhausted, ReasonInsufficientResources,
		"%s would have %d bytes with what is inserted, and at most %d are allowed; use fewer placeholders, or shorter messages and results", what, length, MaxText)
}

// MaxResult is the maximum number of bytes of a result that a model is shown at once. The model
// can read the rest with a tool.
const MaxResult = 16 << 10

// resultKey is the key in the metadata of a text part whose text is a long result. The value is
// the name of the result, which a model uses to read more of it.
const resultKey = "team-server/result"

// ResultParts returns the parts that pass a result on to another agent: head, which describes the
// result, and text, the result itself. A text longer than MaxResult bytes is a part of its own
// with the name of the result in its metadata; otherwise both are in one part.
func ResultParts(head, text, name string) []*a2av1.Part {
	if len(text) <= MaxResult {
		return TextParts(head + "\n\n" + text)
	}
	return append(TextParts(head), &a2av1.Part{
		Content:  &a2av1.Part_Text{Text: text},
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{resultKey: structpb.NewStringValue(name)}},
	})
}

// ResultName returns the name of the result that p holds, or "" if p does not hold a long result.
func ResultName(p *a2av1.Part) string { return p.GetMetadata().GetFields()[resultKey].GetStringValue() }
