package step

import (
	"cmp"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

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

// ask asks people a question about the step. It sets the id, the message id and the role, and how long
// the question stays open; 0 means QuestionExpiry.
func (w *Work) ask(q *teamv1.Asked, expires time.Duration) Result {
	if expires == 0 {
		expires = QuestionExpiry
	}
	q.Question, q.Expires = w.by.Run.ID(w.Scope, "question", w.Questions+1), timestamppb.New(w.by.Run.Now().Add(expires))
	q.Message.MessageId, q.Message.Role = q.GetQuestion(), a2av1.Role_ROLE_AGENT
	ev := w.event(&teamv1.Event{Kind: &teamv1.Event_Asked{Asked: q}})
	if err := w.emit(ev); err != nil {
		return Result{Err: ErrStopped}
	}
	w.Asked.Apply(ev)
	return Result{}
}

// ApplyQuestion folds an event of the step itself if it is a question about more budget or an
// approval, or one that a tool asks during its call, or closes one. It reports whether it does; the
// other layers have nothing to do with such an event. path is that of the team. A question that the target asks about limits or calls on
// another server does not count. closed are the questions that the event closes.
func (p *Past) ApplyQuestion(path string, ev *teamv1.Event, closed []*journal.Question) bool {
	if concerns(path, ev.GetAsked()) {
		p.Questions++
		return true
	}
	if ev.GetAnswered() == nil && ev.GetExpired() == nil {
		return false // the step has ended
	}
	ours := false
	for _, q := range closed {
		if concerns(path, q.Event.GetAsked()) {
			p.applyAnswer(q.Event.GetAsked(), ev.GetAnswered())
			ours = true
		}
	}
	return ours
}

// applyAnswer folds the answer to a question of the step. a is nil if the question has expired.
func (p *Past) applyAnswer(q *teamv1.Asked, a *teamv1.Answered) {
	switch {
	case q.GetToolQuestion() != nil:
		p.applyToolAnswer(q, a)
	case q.GetBudget() != nil:
		p.Declined = a.GetGrant() == nil
	case a == nil:
		p.Approval = &Approval{q.GetApproval(), nil}
	default:
		p.Approval = &Approval{q.GetApproval(), a.GetApproval()}
	}
}

// concerns reports whether a question is about a limit that binds the team at path, or about or in a
// call that the team makes.
func concerns(path string, q *teamv1.Asked) bool {
	if by := cmp.Or(q.GetApproval().GetBy(), q.GetToolQuestion().GetBy()); by != "" {
		return by == path
	}
	by := q.GetBudget().GetSetBy()
	return by != "" && (by == path || strings.HasPrefix(path, by+"/"))
}
