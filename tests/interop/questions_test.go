package interop

import (
	"iter"
	"slices"

	"github.com/a2aproject/a2a-go/v2/a2a"
)

// questions are the scenarios of tasks that ask. The team and the agent that it
// is made of behave alike: the question is the member's.
func questions() []scenario {
	return []scenario{
		{"question", "R-000-04 an agent asks", "curious", playQuestion},
		{"question", "A-23 a member of a team asks", "desk", playQuestion},
		{"subscribe", "A-07 subscribe to a task that asks", "desk", playAnswerWatched},
		{"question", "an answer that does not fit", "desk", playWrongAnswer},
	}
}

// asks sends a message that leads to a question.
func (s *stage) asks() *a2a.Task {
	s.Helper()
	task := s.task(say("High tide"))
	s.is(task, a2a.TaskStateInputRequired)
	if task.Status.Message == nil || text(task.Status.Message.Parts) != "Which city?" {
		s.Fatalf("the status is %+v, want the question", task.Status)
	}
	return task
}

const answered = "High tide in Brest"

func playQuestion(s *stage) any {
	asked := s.asks()
	done := s.task(to(asked.ID, say("Brest")))
	if done.ID != asked.ID || done.ContextID != asked.ContextID {
		s.Errorf("answered by task %s in %s, want %s in %s", done.ID, done.ContextID, asked.ID, asked.ContextID)
	}
	s.is(done, a2a.TaskStateCompleted)
	if got := s.answer(done); got != answered {
		s.Errorf("answer %q, want %q", got, answered)
	}
	return []*a2a.Task{asked, done}
}

// playAnswerWatched subscribes while the question is open, and sees what the
// answer leads to.
func playAnswerWatched(s *stage) any {
	asked := s.asks()
	next, stop := iter.Pull2(s.SubscribeToTask(s.ctx, &a2a.SubscribeToTaskRequest{ID: asked.ID}))
	defer stop()
	task, ok := s.must(next()).(*a2a.Task)
	if !ok {
		s.Fatal("the first event is not a task")
	}
	s.is(task, a2a.TaskStateInputRequired)
	s.is(s.task(to(asked.ID, say("Brest"))), a2a.TaskStateCompleted)
	events := s.rest(next)
	if got, want := states(events), []a2a.TaskState{a2a.TaskStateWorking, a2a.TaskStateCompleted}; !slices.Equal(got, want) {
		s.Errorf("states %v, want %v", got, want)
	}
	if got := fold(task, events); got != answered {
		s.Errorf("artifact %q, want %q", got, answered)
	}
	return events
}

func playWrongAnswer(s *stage) any {
	asked := s.asks()
	_, err := s.SendMessage(s.ctx, in("another-context", to(asked.ID, say("Brest"))))
	refused := s.invalid(err, "message.contextId")
	s.is(s.get(asked.ID), a2a.TaskStateInputRequired)
	return refused
}
