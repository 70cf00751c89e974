package interop

import (
	"iter"

	"github.com/a2aproject/a2a-go/v2/a2a"
)

// collect reads a stream to its end.
func (s *stage) collect(stream iter.Seq2[a2a.Event, error]) []a2a.Event {
	s.Helper()
	var events []a2a.Event
	for ev, err := range stream {
		if err != nil {
			s.Fatalf("after %d events: %v", len(events), err)
		}
		events = append(events, ev)
	}
	if len(events) == 0 {
		s.Fatal("the stream is empty")
	}
	return events
}

// failure is the error of a stream that has nothing but that.
func (s *stage) failure(stream iter.Seq2[a2a.Event, error]) error {
	s.Helper()
	for ev, err := range stream {
		if err == nil {
			s.Fatalf("the stream began with %+v", ev)
		}
		return err
	}
	return nil
}

// fold is the text of the artifacts after all updates of a stream.
func fold(task *a2a.Task, events []a2a.Event) string {
	texts := map[a2a.ArtifactID]string{}
	var order []a2a.ArtifactID
	add := func(a *a2a.Artifact, more bool) {
		if _, known := texts[a.ID]; !known {
			order = append(order, a.ID)
		}
		if !more {
			texts[a.ID] = ""
		}
		texts[a.ID] += text(a.Parts)
	}
	for _, a := range task.Artifacts {
		add(a, false)
	}
	for _, ev := range events {
		if u, ok := ev.(*a2a.TaskArtifactUpdateEvent); ok {
			add(u.Artifact, u.Append)
		}
	}
	all := ""
	for _, id := range order {
		all += texts[id]
	}
	return all
}

// states are the states that a stream tells, each change once.
func states(events []a2a.Event) []a2a.TaskState {
	var list []a2a.TaskState
	for _, ev := range events {
		var state a2a.TaskState
		switch e := ev.(type) {
		case *a2a.Task:
			state = e.Status.State
		case *a2a.TaskStatusUpdateEvent:
			state = e.Status.State
		default:
			continue
		}
		if len(list) == 0 || list[len(list)-1] != state {
			list = append(list, state)
		}
	}
	return list
}

// must returns the next event of a stream that has one.
func (s *stage) must(ev a2a.Event, err error, ok bool) a2a.Event {
	s.Helper()
	if err != nil || !ok {
		s.Fatalf("no event: %v", err)
	}
	return ev
}

// rest reads on to the end of a stream.
func (s *stage) rest(next func() (a2a.Event, error, bool)) []a2a.Event {
	s.Helper()
	var events []a2a.Event
	for {
		ev, err, ok := next()
		if !ok {
			return events
		}
		events = append(events, s.must(ev, err, ok))
	}
}
