package step

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
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

// ApplyQuestion folds an event of the step itself if it is a question of the layers about more budget
// or an approval, or closes one. It reports whether it does; the step's target has nothing to do with
// such an event. path is that of the team. Questions that the target asks about its own limits or
// calls, on another server, are not meant. closed are the questions that the event closes.
func (p *Past) ApplyQuestion(path string, ev *teamv1.Event, closed []*journal.Question) bool {
	if asksFor(path, ev.GetAsked()) {
		p.Questions++
		return true
	}
	ours := false
	for _, q := range closed {
		if ev.GetEnded() == nil && asksFor(path, q.Event.GetAsked()) {
			p.applyAnswer(q.Event.GetAsked(), ev.GetAnswered())
			ours = true
		}
	}
	return ours
}

// applyAnswer folds the answer to a question of the layers. a is nil if nobody has answered in time.
func (p *Past) applyAnswer(q *teamv1.Asked, a *teamv1.Answered) {
	switch {
	case q.GetBudget() != nil:
		p.Declined = a.GetGrant() == nil
	case a == nil:
		p.Decision = &Decision{q.GetApproval(), &teamv1.Approval{Decision: teamv1.Approval_DECISION_REJECT, Reason: "nobody decided in time"}}
	default:
		p.Decision = &Decision{q.GetApproval(), a.GetApproval()}
	}
}

// asksFor reports whether a question is about a limit that binds the team at path, or a call that the
// team makes.
func asksFor(path string, q *teamv1.Asked) bool {
	if by := q.GetApproval().GetBy(); by != "" {
		return by == path
	}
	by := q.GetBudget().GetSetBy()
	return by != "" && (by == path || strings.HasPrefix(path, by+"/"))
}
