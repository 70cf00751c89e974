package team

import (
	"context"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// limitReasons are the reasons of runs that have reached a limit.
var limitReasons = []string{
	agent.ReasonMaxIterations, agent.ReasonMaxDelegations, agent.ReasonMaxRounds, agent.ReasonMaxHandoffs, agent.ReasonRepetitive,
	agent.ReasonRepeatedCall, agent.ReasonBudgetExceeded, agent.ReasonAccountLimit, agent.ReasonTimeout,
}

// finalize ends a run that failed with err with what there is: a run whose answer was cut keeps it as an artifact,
// and one that reached a limit hands it back, if its limits say FINALIZE. If there is nothing, it returns err.
func (p *process) finalize(ctx context.Context, err error) (*teamv1.Reply, error) {
	e := agent.AsError(err)
	if p.stopped || ctx.Err() != nil || p.decidedReply != nil {
		return nil, err
	}
	d := p.handedBack(e)
	if e.Reason == agent.ReasonAnswerTruncated && p.cut != nil && len(p.req.GetPath()) == 0 {
		d = Decision{Reply: p.cut, Failure: e, Reason: "the answer was cut"}
	}
	c := p.chosen(d)
	if d.Reply == nil || d.Failure == nil && c.failure != nil { // required work is missing
		return nil, err
	}
	if err := p.recordDecision(&c); err != nil {
		return nil, err
	}
	return p.conclude(ctx, p.reply(p.decidedReply))
}

// handedBack returns the decision that ends a run which has reached a limit: its answer is what members have
// answered last, and that of an agent what it has written last. A model-backed agent and a leader have answered by
// themselves if they could; see leader.Finalize.
func (p *process) handedBack(e *agent.Error) (d Decision) {
	switch {
	case p.cfg.Limits.GetOnLimit() != teamv1.OnLimit_FINALIZE, !slices.Contains(limitReasons, e.Reason):
		return d
	case e == p.failed && p.failedBelow: // at a limit of a member
		return d
	}
	results := p.latestResults()
	if len(p.cfg.Members) == 0 && !p.traits.WithholdsText {
		results = p.written()
	}
	if len(results) > 0 {
		d = Decision{Reply: Joined(results), Joins: JoinedIDs(results), Reason: "a limit is reached: " + e.Message, Finalized: e.Message}
	}
	return d
}

// written returns the last turn of the run's model that has a text, which may not be whole, and no calls: a text beside
// them says what comes next. It returns nil if there is none.
func (f *fold) written() []*StepState {
	for _, st := range slices.Backward(f.Steps) {
		if st.Step.GetKind() == teamv1.Step_KIND_MODEL && len(st.Turn.GetToolCalls()) == 0 && !prompt.Blank(st.Message) {
			return []*StepState{st}
		}
	}
	return nil
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
