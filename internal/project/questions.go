package project

import (
	"slices"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// questions are the questions of a task and the steps below it, with the answers.
type questions struct {
	at      *place
	answers []answer                    // answers to questions that are no longer open, in order
	forgets func(*teamv1.Question) bool // selects the questions that are hidden; nil hides none
}

// open returns the open questions of the task and the steps below it.
func (s *questions) open() []*journal.Question {
	list := s.at.view.Questions(s.at.scope)
	if s.forgets == nil {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(q *journal.Question) bool { return s.forgets(QuestionOf(s.at.view.Root, q.Event)) })
}

// Summary returns the state of the run as a whole.
func (s *questions) Summary() *journal.Summary { return &s.at.view.Summary }

// Asks reports whether a question of the run is open, also outside the task.
func (s *questions) Asks() bool { return len(s.at.view.Summary.Questions.Open()) > 0 }

// Questions returns the open questions of the task and the steps below it.
func (s *questions) Questions() []*teamv1.Question { return s.Named("") }

// Named returns the open questions that an answer may refer to: those with the question id or
// delegation id named, or all of them if named is empty.
func (s *questions) Named(named string) []*teamv1.Question {
	var fit []*teamv1.Question
	for _, q := range s.open() {
		if q := QuestionOf(s.at.view.Root, q.Event); names(named, q) {
			fit = append(fit, q)
		}
	}
	return fit
}

// Forget hides the questions for which is returns true, and their answers.
func (s *questions) Forget(is func(*teamv1.Question) bool) {
	s.forgets = is
	s.answers = slices.DeleteFunc(s.answers, func(a answer) bool { return is(a.question) })
}

// expire folds an expiry. After that of a question, the task continues to work.
func (f *Fold) expire(ev *teamv1.Event, e *teamv1.Expired) {
	if e.GetLimit() == agent.LimitQuestion {
		f.resume(ev)
	}
}

// resume sets the state of a task that waited for people to working.
func (f *Fold) resume(ev *teamv1.Event) {
	if taskstate.Interrupted(f.state) {
		f.turn(a2av1.TaskState_TASK_STATE_WORKING, ev, nil)
	}
}

// ask folds a question. It removes the answers to earlier questions with the same id, which do not
// answer this one.
func (s *questions) ask(ev *teamv1.Event) {
	s.answers = slices.DeleteFunc(s.answers, func(a answer) bool { return a.question.GetQuestion() == ev.GetAsked().GetQuestion() })
}

// QuestionOf returns the question that an Asked event of a root records.
func QuestionOf(root string, ev *teamv1.Event) *teamv1.Question {
	a := ev.GetAsked()
	return &teamv1.Question{
		Question: a.GetQuestion(), DelegationId: agent.ChildTask(root, ev.GetScope()), Path: ev.GetAgent(),
		Kind: a.GetKind(), Message: a.GetMessage(), Roles: a.GetRoles(), Expires: a.GetExpires(), Budget: a.GetBudget(), Approval: a.GetApproval(),
		ToolQuestion: a.GetToolQuestion(),
	}
}

// answered folds an answer. The closed questions and the answer become part of the history.
func (f *Fold) answered(ev *teamv1.Event, c journal.Change) {
	a := ev.GetAnswered()
	question := &teamv1.Question{Question: a.GetQuestion()}
	for _, q := range c.Closed {
		question = QuestionOf(f.view.Root, q.Event)
		f.say(question.GetMessage())
	}
	f.say(a.GetMessage())
	f.answers = append(f.answers, answer{question: question, first: a, by: c.Node})
	f.resume(ev)
}

// answer is a question with its answer.
type answer struct {
	question *teamv1.Question
	first    *teamv1.Answered
	by       *journal.Node // the node that asked; nil if no decision for it was applied
	used     bool          // the node has decided with the answer
}

// use marks the answers to questions of a node that has decided.
func (s *questions) use(n *journal.Node) {
	for i := range s.answers {
		s.answers[i].used = s.answers[i].used || s.answers[i].by == n
	}
}

// InUse returns the latest answer on which work goes on: the step that asked has neither ended nor,
// if it is a team's, decided since. It returns nil without one, or while a question is open.
func (s *questions) InUse() *teamv1.Answered {
	if len(s.open()) > 0 {
		return nil
	}
	for _, a := range slices.Backward(s.answers) {
		if a.by != nil && a.by.Open() && !a.used {
			return a.first
		}
	}
	return nil
}

// FirstAnswer returns the latest answer to a question with the question id or delegation id named,
// or to any question if named is empty. It returns nil if no answer is recorded, or if named refers
// to an open question.
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

// names reports whether named refers to q, by the question's id or that of its delegation. An empty
// name refers to every question.
func names(named string, q *teamv1.Question) bool {
	return named == "" || named == q.GetQuestion() || named == q.GetDelegationId()
}

// WaitingState returns the state of a task with open questions: auth required if all of them ask
// for authentication, otherwise input required.
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

// questionText returns the status message of a waiting task, with the parts of all open questions.
// It is nil if they have none.
func questionText(open []*journal.Question) *a2av1.Message {
	if len(open) == 0 {
		return nil
	}
	m := &a2av1.Message{MessageId: open[0].ID(), Role: a2av1.Role_ROLE_AGENT}
	for _, q := range open {
		m.Parts = append(m.Parts, q.Event.GetAsked().GetMessage().GetParts()...)
	}
	if len(m.GetParts()) == 0 { // the questions have no text
		return nil
	}
	return m
}
