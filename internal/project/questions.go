package project

import (
	"slices"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// questions are what a task, and what is below it, asks people, and what they answered.
type questions struct {
	tree    *journal.View
	top     string                      // the scope of the task
	answers []answer                    // to questions that are not open any more, in order
	forgets func(*teamv1.Question) bool // nil: nothing is forgotten
}

// open returns the open questions of the task, of what is below it too.
func (s *questions) open() []*journal.Question {
	list := s.tree.Questions(s.top)
	if s.forgets == nil {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(q *journal.Question) bool { return s.forgets(QuestionOf(s.tree.Root, q.Event)) })
}

// Questions returns the open questions of the task, of what is below it too.
func (s *questions) Questions() []*teamv1.Question { return s.Named("") }

// Named returns the open questions that an answer may mean: those with the id that it
// names, or of the delegation; for an empty name all.
func (s *questions) Named(named string) []*teamv1.Question {
	var fit []*teamv1.Question
	for _, q := range s.open() {
		if q := QuestionOf(s.tree.Root, q.Event); names(named, q) {
			fit = append(fit, q)
		}
	}
	return fit
}

// Forget has the fold say nothing of the questions for which is returns true, nor of their
// answers.
func (s *questions) Forget(is func(*teamv1.Question) bool) {
	s.forgets = is
	s.answers = slices.DeleteFunc(s.answers, func(a answer) bool { return is(a.question) })
}

// expire folds that nobody has answered in time.
func (f *Fold) expire(ev *teamv1.Event, e *teamv1.Expired) {
	if e.GetLimit() == agent.LimitQuestion {
		f.resume(ev)
	}
}

// resume makes a task work again that waited.
func (f *Fold) resume(ev *teamv1.Event) {
	if taskstate.Interrupted(f.state) {
		f.turn(a2av1.TaskState_TASK_STATE_WORKING, ev, nil)
	}
}

// ask folds a question. An answer to an earlier one with the same id does not count for it.
func (s *questions) ask(ev *teamv1.Event) {
	s.answers = slices.DeleteFunc(s.answers, func(a answer) bool { return a.question.GetQuestion() == ev.GetAsked().GetQuestion() })
}

// QuestionOf is the question of a root that an Asked event puts on record.
func QuestionOf(root string, ev *teamv1.Event) *teamv1.Question {
	a := ev.GetAsked()
	return &teamv1.Question{
		Question: a.GetQuestion(), DelegationId: agent.ChildTask(root, ev.GetScope()), Path: ev.GetAgent(),
		Kind: a.GetKind(), Message: a.GetMessage(), Roles: a.GetRoles(), Expires: a.GetExpires(),
	}
}

// answered folds an answer: the questions that it closes and the answer become history.
func (f *Fold) answered(ev *teamv1.Event, c journal.Change) {
	a := ev.GetAnswered()
	question := &teamv1.Question{Question: a.GetQuestion()}
	for _, q := range c.Closed {
		question = QuestionOf(f.view.Root, q.Event)
		f.say(question.GetMessage())
	}
	f.say(a.GetMessage())
	f.answers = append(f.answers, answer{question, a})
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
func (s *questions) FirstAnswer(named string) *teamv1.Answered {
	if named != "" && len(s.Named(named)) > 0 {
		return nil
	}
	for _, a := range slices.Backward(s.answers) {
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

// WaitingState returns the state of a task that waits for people: auth required if it asks
// for nothing else, else input required.
func WaitingState(open []*journal.Question) a2av1.TaskState {
	state := a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
	for _, q := range open {
		if q.Event.GetAsked().GetKind() != teamv1.Asked_KIND_AUTH {
			return a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
		}
		state = a2av1.TaskState_TASK_STATE_AUTH_REQUIRED
	}
	return state
}

// questionText is the status message of a task that waits: what is asked.
func questionText(open []*journal.Question) *a2av1.Message {
	if len(open) == 0 {
		return nil
	}
	m := &a2av1.Message{MessageId: open[0].ID(), Role: a2av1.Role_ROLE_AGENT}
	for _, q := range open {
		m.Parts = append(m.Parts, q.Event.GetAsked().GetMessage().GetParts()...)
	}
	if len(m.GetParts()) == 0 { // of a question without words
		return nil
	}
	return m
}
