package agent

import (
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// MaxResult is how many bytes of a result a model is shown; the rest it reads with
// a tool.
const MaxResult = 16 << 10

// resultKey, in the metadata of a part, says that its text is a result, and which
// one: who is handed a long one has it whole, and a model reads on in it.
const resultKey = "team-server/result"

// ResultParts are a result for another agent: what is said of it, and its text. A
// text of more than MaxResult bytes is a part of its own, under the result's name.
func ResultParts(head, text, name string) []*a2av1.Part {
	if len(text) <= MaxResult {
		return TextParts(head + "\n\n" + text)
	}
	return append(TextParts(head), &a2av1.Part{
		Content:  &a2av1.Part_Text{Text: text},
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{resultKey: structpb.NewStringValue(name)}},
	})
}

// ResultName is the name of the result that a part holds; empty is none.
func ResultName(p *a2av1.Part) string { return p.GetMetadata().GetFields()[resultKey].GetStringValue() }
