package step

import (
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// QuestionExpiry is how long a question stays open by default.
const QuestionExpiry = 7 * 24 * time.Hour

// QuestionParts returns the content of a question: its text, and its options as data for forms.
func QuestionParts(ask *teamv1.Ask) []*a2av1.Part {
	parts := agent.TextParts(ask.GetQuestion())
	if len(ask.GetOptions()) == 0 {
		return parts
	}
	options := make([]*structpb.Value, len(ask.GetOptions()))
	for i, o := range ask.GetOptions() {
		options[i] = structpb.NewStringValue(o)
	}
	data := &structpb.Struct{Fields: map[string]*structpb.Value{"options": structpb.NewListValue(&structpb.ListValue{Values: options})}}
	return append(parts, &a2av1.Part{Content: &a2av1.Part_Data{Data: structpb.NewStructValue(data)}})
}
