package team_test

import (
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// TestS_63_StickyOwner looks at the decisions of a coordinator that knows who answered last.
func TestS_63_StickyOwner(t *testing.T) {
	const key = agent.ConversationPrefix + "active_owner"
	begin := func(t *testing.T, disabled bool) (*leader.Coordinator, *team.State) {
		t.Helper()
		all := members("billing", "travel")
		all[0].Disabled = disabled
		c, err := leader.NewCoordinator(leader.CoordinatorConfig{Members: all, StickyOwner: true})
		if err != nil {
			t.Fatal(err)
		}
		return c, &team.State{
			Team: &team.Config{ID: "desk", Members: all}, Path: "desk", Input: agent.UserMessage("m", "and the next one?"),
			Context: map[string]*structpb.Value{key: structpb.NewStringValue("billing")},
		}
	}
	next := func(t *testing.T, c *leader.Coordinator, s *team.State) team.Decision {
		t.Helper()
		d, err := c.Next(s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	t.Run("S-63 the owner gets the message, may hand it back, and stays the owner", func(t *testing.T) {
		c, s := begin(t, false)
		d := next(t, c, s)
		if len(d.Steps) != 1 || d.Steps[0].GetMember() != "billing" || d.Steps[0].GetKind() != teamv1.Step_KIND_TRANSFER {
			t.Fatal(d)
		}
		st := &team.StepState{Step: d.Steps[0], Done: true, Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Message: agent.NewMessage("in May")}
		if to := c.Transfers(s, st); len(to) != 1 || to[0].GetId() != "desk" {
			t.Error(to)
		}
		s.Steps = append(s.Steps, st)
		if d = next(t, c, s); agent.Text(d.Reply) != "in May" || d.Updates[key].GetStringValue() != "billing" {
			t.Error(d)
		}
	})
	t.Run("S-63 a disabled owner is not asked", func(t *testing.T) {
		c, s := begin(t, true)
		if d := next(t, c, s); d.Steps[0].GetKind() != teamv1.Step_KIND_MODEL {
			t.Error(d)
		}
	})
	t.Run("S-63 an owner that was disabled meanwhile is no owner any more", func(t *testing.T) {
		c, s := begin(t, false)
		d := next(t, c, s)
		err := agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonDisabled, "disabled")
		s.Steps = append(s.Steps, &team.StepState{Step: d.Steps[0], Done: true, Outcome: teamv1.Outcome_OUTCOME_REJECTED, Err: err})
		if d = next(t, c, s); d.Steps[0].GetKind() != teamv1.Step_KIND_MODEL {
			t.Fatal(d)
		}
		s.Steps = append(s.Steps, &team.StepState{Step: d.Steps[0], Done: true, Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Turn: says("I do not know"), Message: agent.NewMessage("I do not know")})
		d = next(t, c, s)
		if _, cleared := d.Updates[key].GetKind().(*structpb.Value_NullValue); d.Reply == nil || !cleared {
			t.Error(d)
		}
	})
	t.Run("S-63 when several members have answered, the next message is the leader's", func(t *testing.T) {
		c, s := begin(t, true)
		d := next(t, c, s)
		turn := calls(give("travel", "1"))
		s.Steps = append(s.Steps, &team.StepState{Step: d.Steps[0], Done: true, Turn: turn, Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED})
		for _, id := range []string{"travel", "billing"} {
			s.Steps = append(s.Steps, &team.StepState{
				Step: &teamv1.Step{Kind: teamv1.Step_KIND_DELEGATE, Member: id}, Done: true, Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Message: agent.NewMessage(id),
			})
		}
		s.Steps = append(s.Steps, &team.StepState{Step: d.Steps[0], Done: true, Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Turn: says("both"), Message: agent.NewMessage("both")})
		d = next(t, c, s)
		if _, cleared := d.Updates[key].GetKind().(*structpb.Value_NullValue); d.Reply == nil || !cleared {
			t.Error(d)
		}
	})
}
