package journal

import teamv1 "github.com/agentteams/team-server/gen/team/v1"

// Summary is the state of a run as a whole: its open questions, the effect of its commands, and
// whether it waits. It is part of a View. The zero value is that of a run without events. It is not
// safe for concurrent use.
type Summary struct {
	Questions Questions
	Control
	Clock Clock
	// Started reports whether the run has begun.
	Started bool
}

// Apply applies the run's next event. It returns the question that the event asks, nil without one,
// and the questions that it closes.
func (s *Summary) Apply(ev *teamv1.Event) (asked *Question, closed []*Question) {
	s.Started = s.Started || ev.GetScope() == "" && ev.GetStarted() != nil
	s.Control.Apply(ev)
	s.Clock.ApplyToRun(ev, s.Holds())
	return s.Questions.Apply(ev)
}

// Parked reports whether nothing runs, because the run waits for people or is paused.
func (s *Summary) Parked() bool { return !s.Clock.Waits().IsZero() }
