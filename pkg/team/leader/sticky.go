package leader

import (
	"fmt"

	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

// returnedTurn is the name of the first turn of a leader that takes over from the owner. The prompt says
// why, before the message.
const returnedTurn = "returned"

// toOwner gives the message of a new run to the owner of the conversation: the member that answered
// last. ok is false if there is none that takes work, or if the user has said more already.
func (l *leader) toOwner(s *team.State) (d team.Decision, ok bool) {
	owner := s.Context[agent.OwnerKey].GetStringValue()
	if !l.sticky || owner == "" || len(s.Received) > 0 {
		return team.Decision{}, false
	}
	if m := l.crew.find(owner); m == nil || m.Disabled {
		return team.Decision{}, false
	}
	return team.Decision{
		Steps:  []*teamv1.Step{{Kind: teamv1.Step_KIND_TRANSFER, Member: owner, Input: &teamv1.Input{Message: s.Input}}},
		Reason: owner + " answered last in this conversation",
	}, true
}

// fromOwner returns the decision after the step of the owner, before the leader's first turn. Its
// answer is the team's. If it hands the message back, the user has said more, or it fails in a team
// whose failures go to the leader, the leader takes over.
func (l *leader) fromOwner(s *team.State) team.Decision {
	st := s.Steps[len(s.Steps)-1]
	owner := st.Step.GetMember()
	var why string
	switch err := st.Failure(); {
	case err != nil:
		why = fmt.Sprintf("%s answered last in this conversation and was given the next message, but failed: %s", owner, err.Message)
	case st.Transfer != nil:
		why = fmt.Sprintf("%s answered last in this conversation, was given the next message, and handed it back.", owner)
		if m := st.Transfer.GetMessage(); m != "" {
			why = fmt.Sprintf("%s answered last in this conversation, was given the next message, and handed it back: %s", owner, m)
		}
	case st.ReceivedBefore < len(s.Received):
		why = fmt.Sprintf("%s has answered the next message: %s\nMeanwhile the user has said more.", owner, s.ResultText(st))
	case st.Message != nil:
		return team.Decision{Reply: st.Message, Reason: owner + " answered"}
	default:
		why = owner + " was given the next message and did not answer."
	}
	d := modelStep(returnedTurn, owner+" does not answer by itself")
	d.Steps[0].Ask = &teamv1.Ask{Question: why}
	return d
}

// withOwner adds to a decision that ends the run who the next message of the conversation goes to:
// the member, if only one has answered in this run, else the leader.
func (l *leader) withOwner(s *team.State, d team.Decision) team.Decision {
	if !l.sticky || d.Reply == nil {
		return d
	}
	owner := ""
	for _, st := range s.All() {
		switch id := st.Step.GetMember(); {
		case !st.ByMember() || st.Message == nil || st.Failure() != nil || st.Step.GetDetached():
		case owner != "" && owner != id:
			return withUpdate(d, structpb.NewNullValue()) // several have answered
		default:
			owner = id
		}
	}
	if owner == "" {
		return withUpdate(d, structpb.NewNullValue())
	}
	return withUpdate(d, structpb.NewStringValue(owner))
}

func withUpdate(d team.Decision, owner *structpb.Value) team.Decision {
	d.Updates = map[string]*structpb.Value{agent.OwnerKey: owner}
	return d
}

// Transfers implements [team.Scheduler]. The owner of a conversation may hand its message back.
func (l *leader) Transfers(s *team.State, st *team.StepState) []*teamv1.TransferTarget {
	if st.Step.GetKind() != teamv1.Step_KIND_TRANSFER {
		return nil
	}
	return []*teamv1.TransferTarget{{Id: s.Team.ID, Description: "The leader of the team. Hand over what is not yours to answer."}}
}
