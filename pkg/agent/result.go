package agent

import (
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

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
