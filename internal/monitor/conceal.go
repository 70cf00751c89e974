package monitor

import (
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
)

// conceal takes out of a trace what its run has brought forth, and what was made of
// that (R-001-42): the structure stays, with outcomes, kinds of errors, times and cost,
// and so does what people said.
func conceal(root *teamv1.TraceStep) {
	failure := root.GetError()
	concealStep(root)
	if root.GetOutcome() == teamv1.Outcome_OUTCOME_CANCELED {
		root.Error = failure // of the stop: the words are the server's
	}
}

func concealStep(s *teamv1.TraceStep) {
	s.Result, s.Warnings, s.Error = nil, nil, a2a.BareError(s.GetError())
	s.Notes = slices.DeleteFunc(s.GetNotes(), func(ev *teamv1.Event) bool { return a2a.Bare(ev) == nil && ev.GetReceived() == nil })
	if v := s.GetVerdict(); v != nil {
		s.Verdict = &teamv1.Verdict{Score: v.Score} //nolint:protogetter // set or not matters
	}
	for _, a := range s.GetAttempts() {
		a.Error = a2a.BareError(a.GetError())
	}
	for _, d := range s.GetDecisions() {
		d.Reason, d.Values, d.Ask, d.Plan, d.Updates, d.Failure = "", nil, nil, nil, nil, a2a.BareError(d.GetFailure())
	}
	for _, q := range s.GetQuestions() {
		q.Message = nil
	}
	for _, step := range s.GetSteps() {
		step.Input = nil
		concealStep(step)
	}
}
