package team

import (
	"context"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// limitReasons are the reasons of runs that have reached a limit.
var limitReasons = []string{
	agent.ReasonMaxIterations, agent.ReasonMaxDelegations, agent.ReasonMaxRounds, agent.ReasonMaxHandoffs, agent.ReasonRepetitive,
	agent.ReasonRepeatedCall, agent.ReasonBudgetExceeded, agent.ReasonAccountLimit, agent.ReasonTimeout,
}

// finalize ends a run that failed with err with what there is, if err is that of a limit of the run, the
// limits say FINALIZE, and members have answered. Otherwise it returns err. A model-backed agent and a leader
// have answered by themselves if they could; see leader.Finalize.
func (p *process) finalize(ctx context.Context, err error) (*teamv1.Reply, error) {
	e := agent.AsError(err)
	if p.stopped || ctx.Err() != nil || p.cfg.Limits.GetOnLimit() != teamv1.OnLimit_FINALIZE || !slices.Contains(limitReasons, e.Reason) {
		return nil, err
	}
	if e == p.failed && p.failedBelow { // at a limit of a member
		return nil, err
	}
	results := p.latestResults()
	if len(results) == 0 || p.decidedReply != nil {
		return nil, err
	}
	d := p.chosen(Decision{Reply: Joined(results), Joins: JoinedIDs(results), Reason: "a limit is reached: " + e.Message})
	if d.failure != nil { // required work is missing
		return nil, err
	}
	d.Finalized = e.Message
	if err := p.recordDecision(&d); err != nil {
		return nil, err
	}
	return p.conclude(ctx, p.reply(p.decidedReply))
}

// latestResults returns the steps of the last decision that dispatched members with an answer, of those
// that have answered.
func (f *fold) latestResults() []*StepState {
	var latest []*StepState
	for _, st := range f.Steps {
		if !st.Done || !st.ByMember() || st.Outcome != teamv1.Outcome_OUTCOME_SUCCEEDED || len(st.Message.GetParts()) == 0 {
			continue
		}
		if len(latest) > 0 && latest[0].Round != st.Round {
			latest = nil
		}
		latest = append(latest, st)
	}
	return latest
}
