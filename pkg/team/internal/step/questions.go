package step

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// QuestionExpiry is how long a question waits for its answer where nobody says it.
const QuestionExpiry = 7 * 24 * time.Hour

// QuestionParts words a question: its text, and its options as data for forms.
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

// Questions are the open ones of a step and below it: by id, the scope that asked.
type Questions map[string]string

// Follow takes note of an event of the step or below it.
func (q *Questions) Follow(ev *teamv1.Event) {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Asked:
		if *q == nil {
			*q = Questions{}
		}
		(*q)[k.Asked.GetQuestion()] = ev.GetScope()
	case *teamv1.Event_Answered:
		delete(*q, k.Answered.GetQuestion())
	case *teamv1.Event_Expired:
		if k.Expired.GetLimit() == agent.LimitQuestion {
			maps.DeleteFunc(*q, func(_, scope string) bool { return scope == ev.GetScope() })
		}
	case *teamv1.Event_Ended:
		maps.DeleteFunc(*q, func(_, scope string) bool { return agent.Within(scope, ev.GetScope()) })
	default:
	}
}

// IDs returns the questions, sorted.
func (q Questions) IDs() []string { return slices.Sorted(maps.Keys(q)) }

// From reports whether a scope that is so has asked one of them.
func (q Questions) From(is func(scope string) bool) bool {
	for _, scope := range q {
		if is(scope) {
			return true
		}
	}
	return false
}

// Hold reports whether all of ids are among them.
func (q Questions) Hold(ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { _, open := q[id]; return !open })
}
