package team

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// needsThreshold reports whether a model or an agent judges the results of a member of the team c, and
// no threshold says which scores are accepted.
func (r *Review) needsThreshold(c *Config) bool {
	return r.Threshold == nil && r.Check == nil && r.Format == nil && (r.Model != nil || r.Agent != "" || c.Model != nil)
}

// acceptanceFaults returns what is wrong with the acceptance of a member, in terms of the configuration
// file.
func (m *Member) acceptanceFaults(c *Config, i int) []error {
	if m.Accept == nil {
		return nil
	}
	at := fmt.Sprintf("members[%d].accept", i)
	faults := m.Accept.faults(c, at)
	if m.Accept.needsThreshold(c) {
		faults = append(faults, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig,
			"team %q: %s.threshold is required when a model or an agent judges; set it to the minimum score, 0 to 1, of a result that is accepted", c.ID, at))
	}
	return faults
}

// addAcceptances creates the teams that judge the results of members.
func (l *Loop) addAcceptances() error {
	var faults []error
	for i := range l.cfg.Members {
		m := &l.cfg.Members[i]
		if m.Accept == nil {
			continue
		}
		t, err := l.newAcceptance(m)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if l.acceptances == nil {
			l.acceptances = map[string]*Team{}
		}
		l.acceptances[m.ID] = t
	}
	return errors.Join(faults...)
}

// newAcceptance returns the agent of delegations to a member whose results are judged: a team of that
// member alone, whose review decides. To the scheduler a delegation is one step, which succeeds with an
// accepted result or fails. The member works in the place of the delegation: under its path and limits,
// with what the team passes on to it.
func (l *Loop) newAcceptance(m *Member) (*Team, error) {
	review := *m.Accept
	review.judgesMember = true
	review.withholdsVerdict = len(l.cfg.Guards.Output)+len(l.cfg.Guards.Result) > 0
	if review.Threshold == nil {
		review.Threshold = proto.Float64(1)
	}
	if review.Model == nil && review.Check == nil && review.Format == nil && review.Agent == "" {
		review.Model = l.cfg.Model
	}
	limits := &teamv1.Limits{Timeout: durationpb.New(l.limits.timeout), Retry: l.cfg.Limits.GetRetry(), MaxDepth: proto.Int32(int32(l.limits.maxDepth))} //nolint:gosec // at most what the file sets
	if l.limits.memberTimeout > 0 {
		limits.MemberTimeout = durationpb.New(l.limits.memberTimeout)
	}
	inner := Member{ID: m.ID, Agent: m.Agent, Role: m.Role, Description: m.Description, Timeout: m.Timeout, Retry: m.Retry, History: HistoryConversation}
	t, err := New(Config{
		ID: m.ID, Mode: "accept", Scheduler: acceptance{team: l.cfg.ID, setsTimeouts: l.traits.SetsTimeouts}, Members: []Member{inner},
		// The wrapper hides Staff: a member that is removed between rounds still finishes its delegation.
		Registry: struct{ Members }{l.cfg.Registry},
		Limits:   limits, Review: &review, Guards: agent.Guards{Result: l.cfg.Guards.Result}, MemberTools: l.cfg.MemberTools, Upstreams: l.cfg.Upstreams, Log: l.cfg.Log,
	})
	if err == nil {
		t.limits.maxSteps = max(t.limits.maxSteps, 2*review.MaxRounds) // the rounds bound it
	}
	return t, err
}

// guardOwner returns the id of the team whose middlewares check messages: the team of the member, if the
// loop judges the results of a member.
func (l *Loop) guardOwner() string {
	if a, ok := l.cfg.Scheduler.(acceptance); ok {
		return a.team
	}
	return l.cfg.ID
}

// isAcceptance reports whether the loop judges the results of a member.
func (l *Loop) isAcceptance() bool {
	_, ok := l.cfg.Scheduler.(acceptance)
	return ok
}

// acceptance is the scheduler of delegations to a member whose results are judged. It gives the message
// to the only member, whose answer or hand-over ends the round.
type acceptance struct {
	Base
	team         string // id of the member's team
	setsTimeouts bool   // as in the Traits of the team's scheduler
}

// Traits implements [Scheduler].
func (a acceptance) Traits() Traits {
	return Traits{SetsTimeouts: a.setsTimeouts, DetectsCycles: true}
}

// Next implements [Scheduler].
func (acceptance) Next(s *State) (Decision, error) {
	id := MemberID(&s.Team.Members[0])
	if len(s.Steps) == 0 {
		return round(id, s.Input, "the result is judged"), nil
	}
	switch st := s.Steps[len(s.Steps)-1]; {
	case !st.Done:
		return Decision{}, nil // wait
	case st.Transfer != nil:
		return Decision{Transfer: st.Transfer, Reason: id + " hands over"}, nil
	case st.ReceivedBefore < len(s.Received):
		var j prompt.Joiner
		for _, m := range s.Received[st.ReceivedBefore:] {
			j.Add(m.GetParts())
		}
		m := j.Message()
		m.Role, m.ContextId = a2av1.Role_ROLE_USER, s.Input.GetContextId()
		return round(id, m, "the user has said more"), nil
	case st.Message != nil:
		return Decision{Reply: st.Message, Reason: id + " answered"}, nil
	}
	return Decision{Reply: &a2av1.Message{Role: a2av1.Role_ROLE_AGENT}, Reason: id + " returned no content"}, nil
}

// round returns the decision to give a message to the member.
func round(member string, input *a2av1.Message, reason string) Decision {
	return Decision{Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_ROUND, Member: member, Input: &teamv1.Input{Message: input}}}, Reason: reason}
}

// Transfers implements [Scheduler]. The member may hand over as it may if its results are not judged.
func (acceptance) Transfers(s *State, _ *StepState) []*teamv1.TransferTarget { return s.Transfers }
