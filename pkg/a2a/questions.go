package a2a

import (
	"slices"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// expire closes the questions of a step that nobody answered in time.
func (f *Fold) expire(ev *teamv1.Event, e *teamv1.Expired) {
	if e.GetLimit() == agent.LimitQuestion {
		f.closeQuestions(ev.GetScope())
		f.resume(ev)
	}
}

// resume makes a task work again that waited.
func (f *Fold) resume(ev *teamv1.Event) {
	if interrupted(f.state) {
		f.turn(a2av1.TaskState_TASK_STATE_WORKING, ev, nil)
	}
}

// closeQuestions drops what a scope, or one below it, has asked.
func (f *Fold) closeQuestions(scope string) {
	f.questions = slices.DeleteFunc(f.questions, func(q *teamv1.Question) bool {
		_, asker := agent.SplitTask(q.GetDelegationId())
		return agent.Within(asker, scope)
	})
}

// ask adds an open question.
func (f *Fold) ask(ev *teamv1.Event) {
	delete(f.answers, ev.GetAsked().GetQuestion())
	f.questions = append(f.questions, QuestionOf(f.root, ev))
}

// QuestionOf is the question of a root that an Asked event puts on record.
func QuestionOf(root string, ev *teamv1.Event) *teamv1.Question {
	a := ev.GetAsked()
	return &teamv1.Question{
		Question: a.GetQuestion(), DelegationId: agent.ChildTask(root, ev.GetScope()), Path: ev.GetAgent(),
		Kind: a.GetKind(), Message: a.GetMessage(), Roles: a.GetRoles(), Expires: a.GetExpires(),
	}
}

// answered closes a question; the question and its answer become history.
func (f *Fold) answered(ev *teamv1.Event, a *teamv1.Answered) {
	f.questions = slices.DeleteFunc(f.questions, func(q *teamv1.Question) bool {
		if q.GetQuestion() == a.GetQuestion() {
			f.say(q.GetMessage())
			return true
		}
		return false
	})
	f.say(a.GetMessage())
	if f.answers == nil {
		f.answers = map[string]*teamv1.Answered{}
	}
	f.answers[a.GetQuestion()] = a
	f.resume(ev)
}

// waitingState is input required, or auth required where nothing else is asked for.
func (f *Fold) waitingState() a2av1.TaskState {
	auth := len(f.questions) > 0
	for _, q := range f.questions {
		auth = auth && q.GetKind() == teamv1.Asked_KIND_AUTH
	}
	if auth {
		return a2av1.TaskState_TASK_STATE_AUTH_REQUIRED
	}
	return a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
}

// questionText is the status message of a task that waits: what is asked.
func (f *Fold) questionText() *a2av1.Message {
	if len(f.questions) == 0 {
		return nil
	}
	m := &a2av1.Message{MessageId: f.questions[0].GetQuestion(), Role: a2av1.Role_ROLE_AGENT}
	for _, q := range f.questions {
		m.Parts = append(m.Parts, q.GetMessage().GetParts()...)
	}
	if len(m.GetParts()) == 0 { // they are concealed
		return nil
	}
	return m
}
