package scenario

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/source"
)

// PlayReal plays scenarios with real models, one after the other, and calls report with each result. Together they may
// cost most, in millionths of a USD; 0 means any amount. It stops when report returns an error or a scenario cannot be
// set up. The error is source.Faults if a model has no price, because what it costs could not be limited or told.
func PlayReal(ctx context.Context, all []*Scenario, most int64, log *zap.Logger, report func(*Result) error) error {
	if faults := unpriced(all); len(faults) > 0 {
		return faults
	}
	left := most
	for _, s := range all {
		r := &Result{Scenario: s}
		switch {
		case s.wantsFailure():
			r.NotPlayed = "it expects a failure, which its script causes"
		case most > 0 && left <= 0:
			r.NotPlayed = "the money of --max-cost is spent"
		default:
			var err error
			if r, err = s.play(ctx, Place{}, max(left, 0), log); err != nil {
				return err
			}
			left -= r.Spent().GetCostMicros()
		}
		if err := report(r); err != nil {
			return err
		}
	}
	return nil
}

// unpriced returns the models without a price that scenarios call, as faults.
func unpriced(all []*Scenario) (faults source.Faults) {
	for _, s := range all {
		for _, u := range config.Unpriced(s.def, s.Team) {
			faults = append(faults, source.Fault{
				File: s.def.File, Line: s.def.Line("models", u.Model),
				Message: fmt.Sprintf("model %q has no price, so what tests with real models cost is not known", u.Model), Hint: u.Fix(),
			})
		}
	}
	return source.Tidy(faults)
}

// wantsFailure reports whether a message of the scenario is expected to fail.
func (s *Scenario) wantsFailure() bool {
	for _, t := range s.turns {
		w := t.GetWant()
		switch w.GetState() {
		case teamv1.FinalState_FAILED, teamv1.FinalState_REJECTED, teamv1.FinalState_CANCELED:
			return true
		case teamv1.FinalState_DEFAULT_STATE, teamv1.FinalState_COMPLETED, teamv1.FinalState_INPUT_REQUIRED:
		}
		if w.GetReason() != "" || w.GetError() != nil {
			return true
		}
	}
	return false
}
