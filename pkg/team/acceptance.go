package team

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// defaultAcceptance returns the threshold of an acceptance that sets none: results must meet a check
// or a format completely.
func (r *Review) defaultAcceptance() *float64 {
	if r.Threshold != nil {
		return r.Threshold
	}
	return proto.Float64(1)
}

// acceptanceFaults returns what is wrong with the acceptance of a member, in terms of the
// configuration file.
func (m *Member) acceptanceFaults(c *Config) []error {
	if m.Accept == nil {
		return nil
	}
	at := "members." + m.ID + ".accept"
	faults := m.Accept.faults(c, at)
	byOpinion := m.Accept.Model != nil || m.Accept.Agent != "" || m.Accept.Check == nil && m.Accept.Format == nil && c.Model != nil
	if byOpinion && m.Accept.Threshold == nil {
		faults = append(faults, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig,
			"team %q: %s has a judge that gives scores and no threshold; set threshold to the least score, 0 to 1, of a result that is accepted", c.ID, at))
	}
	return faults
}

// accepting returns the agent of a delegation to a member whose results have to be accepted: a team of
// that member alone, whose review decides. To the scheduler the delegation is one step, which succeeds
// with an accepted result or fails. The agent has the limits of the team, and passes on to the member
// what the team does.
func (l *Loop) accepting(m *Member, st *StepState) (*Team, error) {
	review := *m.Accept
	review.ofMember, review.Threshold = true, review.defaultAcceptance()
	if review.Model == nil && review.Check == nil && review.Format == nil && review.Agent == "" {
		review.Model = l.cfg.Model
	}
	limits := &teamv1.Limits{Timeout: durationpb.New(l.limits.timeout), Retry: l.cfg.Limits.GetRetry()}
	if depth := l.cfg.Limits.GetMaxDepth(); depth > 0 {
		limits.MaxDepth = proto.Int32(depth)
	}
	return New(Config{
		ID: m.ID, Mode: "accept", Scheduler: attempts{retry: st.Step.GetRetry()},
		Members: []Member{{
			ID: m.ID, Agent: m.Agent, Role: m.Role, Description: m.Description, Retry: m.Retry, History: HistoryConversation,
			StreamInner: m.StreamInner, HideText: m.HideText,
		}},
		Registry: struct{ Members }{l.cfg.Registry}, // the team itself has asked whether the member is gone
		Limits:   limits, Review: &review, MemberTools: l.cfg.MemberTools, Upstreams: l.cfg.Upstreams, Log: l.cfg.Log,
	})
}

// attempts is the scheduler of a delegation whose results have to be accepted: it gives the message
// to the only member, and its answer or its transfer ends the round.
type attempts struct {
	Base
	retry *teamv1.Retry // retry policy of the delegation; nil means the team's
}

// Traits implements [Scheduler]. The time of the delegation bounds all rounds together.
func (attempts) Traits() Traits { return Traits{SetsTimeouts: true, DetectsCycles: true} }

// Next implements [Scheduler].
func (a attempts) Next(s *State) (Decision, error) {
	id := MemberID(&s.Team.Members[0])
	if len(s.Steps) == 0 {
		return Decision{
			Steps:  []*teamv1.Step{{Kind: teamv1.Step_KIND_DELEGATE, Member: id, Input: &teamv1.Input{Message: s.Input}, Retry: a.retry}},
			Reason: "the result of " + id + " has to be accepted",
		}, nil
	}
	switch st := s.Steps[len(s.Steps)-1]; {
	case !st.Done:
		return Decision{}, nil // wait
	case st.Transfer != nil:
		return Decision{Transfer: st.Transfer, Reason: id + " hands over"}, nil
	case st.Message != nil:
		return Decision{Reply: st.Message, Reason: id + " answered"}, nil
	}
	return Decision{Reply: &a2av1.Message{Role: a2av1.Role_ROLE_AGENT}, Reason: id + " returned no content"}, nil
}

// Transfers implements [Scheduler]. The member may hand over as it may without an acceptance.
func (attempts) Transfers(s *State, _ *StepState) []*teamv1.TransferTarget { return s.Transfers }
