package project

import (
	"slices"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// openQuestions are the questions of a scope and of what is below it.
type openQuestions struct {
	questions []*teamv1.Question
	answers   []answer // to those that are not open any more, in order
}

// expire closes the questions of a step whose time for an answer is over.
func (f *Fold) expire(ev *teamv1.Event, e *teamv1.Expired) {
	if e.GetLimit() == agent.LimitQuestion {
		f.closeQuestions(ev.GetScope())
		f.resume(ev)
	}
}

// resume makes a task work again that waited.
func (f *Fold) resume(ev *teamv1.Event) {
	if taskstate.Interrupted(f.state) {
		f.turn(a2av1.TaskState_TASK_STATE_WORKING, ev, nil)
	}
}

// closeQuestions drops what a scope, or one below it, has asked.
func (o *openQuestions) closeQuestions(scope string) {
	o.questions = slices.DeleteFunc(o.questions, func(q *teamv1.Question) bool {
		_, asker := agent.SplitTask(q.GetDelegationId())
		return agent.Within(asker, scope)
	})
}

// ask adds an open question.
func (o *openQuestions) ask(root string, ev *teamv1.Event) {
	o.answers = slices.DeleteFunc(o.answers, func(a answer) bool { return a.question.GetQuestion() == ev.GetAsked().GetQuestion() })
	o.questions = append(o.questions, QuestionOf(root, ev))
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
	closed := &teamv1.Question{Question: a.GetQuestion()}
	f.questions = slices.DeleteFunc(f.questions, func(q *teamv1.Question) bool {
		if q.GetQuestion() == a.GetQuestion() {
			closed = q
			f.say(q.GetMessage())
			return true
		}
		return false
	})
	f.say(a.GetMessage())
	f.answers = append(f.answers, answer{closed, a})
	f.resume(ev)
}

// answer is a question and its answer.
type answer struct {
	question *teamv1.Question
	first    *teamv1.Answered
}

// FirstAnswer returns the latest answer to a question that is named by its id or its
// delegation's, or to any question if named is empty. It returns nil if no answer is on record,
// or if named is an open question.
func (o *openQuestions) FirstAnswer(named string) *teamv1.Answered {
	if slices.ContainsFunc(o.questions, func(q *teamv1.Question) bool { return names(named, q) && named != "" }) {
		return nil
	}
	for _, a := range slices.Backward(o.answers) {
		if names(named, a.question) {
			return a.first
		}
	}
	return nil
}

// names reports whether an answer that names a question may mean q: by its id or its
// delegation's; an empty name means any.
func names(named string, q *teamv1.Question) bool {
	return named == "" || named == q.GetQuestion() || named == q.GetDelegationId()
}

// waitingState is input required, or auth required where nothing else is asked for.
func (o *openQuestions) waitingState() a2av1.TaskState {
	auth := len(o.questions) > 0
	for _, q := range o.questions {
		auth = auth && q.GetKind() == teamv1.Asked_KIND_AUTH
	}
	if auth {
		return a2av1.TaskState_TASK_STATE_AUTH_REQUIRED
	}
	return a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
}

// questionText is the status message of a task that waits: what is asked.
func (o *openQuestions) questionText() *a2av1.Message {
	if len(o.questions) == 0 {
		return nil
	}
	m := &a2av1.Message{MessageId: o.questions[0].GetQuestion(), Role: a2av1.Role_ROLE_AGENT}
	for _, q := range o.questions {
		m.Parts = append(m.Parts, q.GetMessage().GetParts()...)
	}
	if len(m.GetParts()) == 0 { // of a question without words
		return nil
	}
	return m
}

// Questions are the open questions of the task. Shared: read only.
func (o *openQuestions) Questions() []*teamv1.Question { return o.questions }

// Named returns the open questions that an answer may mean: those with the id that it
// names, or of the delegation; for an empty name all.
func (o *openQuestions) Named(named string) []*teamv1.Question {
	var fit []*teamv1.Question
	for _, q := range o.questions {
		if names(named, q) {
			fit = append(fit, q)
		}
	}
	return fit
}

// Forget drops the questions, also the answered ones, for which is returns true.
func (o *openQuestions) Forget(is func(*teamv1.Question) bool) {
	o.questions = slices.DeleteFunc(o.questions, is)
	o.answers = slices.DeleteFunc(o.answers, func(a answer) bool { return is(a.question) })
}
