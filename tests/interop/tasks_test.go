package interop

import (
	"iter"
	"slices"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/go-cmp/cmp"
)

// tasks are the scenarios of single tasks: such that run on, and such that have ended.
func tasks() []scenario {
	return []scenario{
		{"cancel", "R-000-04 cancel a task of an agent", "patient", playCancel},
		{"cancel", "R-000-04 cancel a task of a team", "bureau", playCancel},
		{"subscribe", "A-07 subscribe to a task of an agent", "patient", playSubscribe},
		{"subscribe", "A-07 subscribe to a task of a team", "bureau", playSubscribe},
		{"stream", "A-09 leave a stream", "patient", playLeave},
		{"stream", "stream in pieces", "echo", playPieces},
		{"get", "A-06 history length", "echo", playHistory},
		{"ended", "A-02 a task that has ended", "echo", playEnded},
	}
}

// waiting starts a task that takes forever, and returns once its agent works on it.
func (s *stage) waiting() *a2a.Task {
	s.Helper()
	task := s.task(atOnce(say("wait")))
	s.begun(task.ID)
	return task
}

// begun waits until the patient agent, not only the team around it, works on a task.
func (s *stage) begun(id a2a.TaskID) {
	s.Helper()
	for ev, err := range s.SubscribeToTask(s.ctx, &a2a.SubscribeToTaskRequest{ID: id}) {
		if err != nil {
			s.Fatal(err)
		}
		var says *a2a.Message
		switch ev := ev.(type) {
		case *a2a.Task:
			says = ev.Status.Message
		case *a2a.TaskStatusUpdateEvent:
			says = ev.Status.Message
		}
		if says != nil && text(says.Parts) == "Waiting." {
			return
		}
	}
	s.Fatal("the stream ended before the agent began")
}

// playCancel ends a task that would take forever, twice.
func playCancel(s *stage) any {
	task := s.waiting()
	canceled, err := s.CancelTask(s.ctx, &a2a.CancelTaskRequest{ID: task.ID})
	if err != nil {
		s.Fatal(err)
	}
	s.is(canceled, a2a.TaskStateCanceled)
	if len(canceled.Artifacts) != 0 {
		s.Errorf("%d artifacts, want none", len(canceled.Artifacts))
	}
	again, err := s.CancelTask(s.ctx, &a2a.CancelTaskRequest{ID: task.ID})
	if err != nil {
		s.Fatal(err)
	}
	if diff := cmp.Diff(canceled, again); diff != "" {
		s.Errorf("a second cancel is answered otherwise (- first, + second):\n%s", diff)
	}
	if diff := cmp.Diff(canceled, s.get(task.ID)); diff != "" {
		s.Errorf("get (- cancel, + get):\n%s", diff)
	}
	return canceled
}

// playSubscribe watches a task from two places until a third one ends it.
func playSubscribe(s *stage) any {
	task := s.waiting()
	watch := func() (first a2a.Event, rest func() []a2a.Event) {
		next, stop := iter.Pull2(s.SubscribeToTask(s.ctx, &a2a.SubscribeToTaskRequest{ID: task.ID}))
		s.Cleanup(stop)
		return s.must(next()), func() []a2a.Event { return s.rest(next) }
	}
	first, rest := watch()
	if got, ok := first.(*a2a.Task); !ok || got.ID != task.ID || got.Status.State.Terminal() {
		s.Fatalf("the first event is %+v, not the running task", first)
	}
	_, others := watch()
	if _, err := s.CancelTask(s.ctx, &a2a.CancelTaskRequest{ID: task.ID}); err != nil {
		s.Fatal(err)
	}
	events := rest()
	if got := states(events); len(got) == 0 || got[len(got)-1] != a2a.TaskStateCanceled {
		s.Errorf("states %v, want the end to be %s", got, a2a.TaskStateCanceled)
	}
	if got, want := others(), events; !cmp.Equal(want[len(want)-1], got[len(got)-1]) {
		s.Errorf("the two watchers saw different ends: %+v and %+v", want[len(want)-1], got[len(got)-1])
	}
	return events[len(events)-1]
}

// playLeave breaks off a stream: the task goes on.
func playLeave(s *stage) any {
	var task *a2a.Task
	for ev, err := range s.SendStreamingMessage(s.ctx, say("wait")) {
		if err != nil {
			s.Fatal(err)
		}
		task, _ = ev.(*a2a.Task)
		break
	}
	if task == nil {
		s.Fatal("the first event is not a task")
	}
	s.begun(task.ID)
	if now := s.get(task.ID); now.Status.State.Terminal() {
		s.Errorf("the task is %s because its reader left", now.Status.State)
	}
	canceled, err := s.CancelTask(s.ctx, &a2a.CancelTaskRequest{ID: task.ID})
	if err != nil {
		s.Fatal(err)
	}
	s.is(canceled, a2a.TaskStateCanceled)
	return canceled
}

// playPieces streams an answer piece by piece.
func playPieces(s *stage) any {
	events := s.collect(s.SendStreamingMessage(s.ctx, say("high and low tide")))
	var pieces []string
	for _, ev := range events {
		if u, ok := ev.(*a2a.TaskArtifactUpdateEvent); ok && !u.LastChunk {
			pieces = append(pieces, text(u.Artifact.Parts))
		}
	}
	if want := []string{"high", " and", " low", " tide"}; !slices.Equal(pieces, want) {
		s.Errorf("pieces %q, want %q", pieces, want)
	}
	task, ok := events[0].(*a2a.Task)
	if !ok {
		s.Fatalf("the first event is a %T, not a task", events[0])
	}
	if got := fold(task, events[1:]); got != "high and low tide" {
		s.Errorf("artifact %q, want the input", got)
	}
	return events
}

func playHistory(s *stage) any {
	none, negative := 0, -1
	req := say("hello")
	req.Config = &a2a.SendMessageConfig{HistoryLength: &none}
	task := s.task(req)
	if len(task.History) != 0 {
		s.Errorf("%d messages, want none", len(task.History))
	}
	if all := s.get(task.ID); len(all.History) != 1 {
		s.Errorf("get without a length: %d messages, want 1", len(all.History))
	}
	_, err := s.GetTask(s.ctx, &a2a.GetTaskRequest{ID: task.ID, HistoryLength: &negative})
	return s.invalid(err, "historyLength")
}

// playEnded does to a task that has ended what is no longer possible.
func playEnded(s *stage) any {
	task := s.task(say("hello"))
	_, sending := s.SendMessage(s.ctx, to(task.ID, say("more")))
	_, canceling := s.CancelTask(s.ctx, &a2a.CancelTaskRequest{ID: task.ID})
	return []any{
		s.refused(sending, a2a.ErrUnsupportedOperation),
		s.refused(canceling, a2a.ErrTaskNotCancelable),
		s.refused(s.failure(s.SubscribeToTask(s.ctx, &a2a.SubscribeToTaskRequest{ID: task.ID})), a2a.ErrUnsupportedOperation),
		s.refused(s.failure(s.SendStreamingMessage(s.ctx, to(task.ID, say("more")))), a2a.ErrUnsupportedOperation),
	}
}
