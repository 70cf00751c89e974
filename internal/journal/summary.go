package journal

import teamv1 "github.com/agentteams/team-server/gen/team/v1"

// Summary is how a run stands as a whole: what it asks, what it was commanded, and whether
// it waits. It is a part of a View, and all that those need who work for a run: it keeps no
// steps and no texts. The zero value is that of a run without events. It is not safe for
// concurrent use.
type Summary struct {
	Questions Questions
	Control
	Clock Clock
	// Started reports that the run has begun.
	Started bool
}

// Apply takes the run's next event. It returns the question that it asks, nil without one,
// and those that it closes.
func (s *Summary) Apply(ev *teamv1.Event) (asked *Question, closed []*Question) {
	s.Started = s.Started || ev.GetScope() == "" && ev.GetStarted() != nil
	s.Control.Apply(ev)
	s.Clock.ApplyToRun(ev, s.Holds())
	return s.Questions.Apply(ev)
}

// Parked reports that nothing runs: the run waits for people, or is paused.
func (s *Summary) Parked() bool { return !s.Clock.Waits().IsZero() }
