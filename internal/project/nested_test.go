package project_test

import (
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/agent"
)

// TestFold_ChildOfATeamBelowShowsWhatThatTeamWasGiven: the task of a member that is handed
// on what its team was given begins with that message, and not with that of the run.
func TestFold_ChildOfATeamBelowShowsWhatThatTeamWasGiven(t *testing.T) {
	step := func(in *teamv1.Input) *teamv1.Event_Decided {
		return &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: []*teamv1.Step{{Id: "1", Kind: teamv1.Step_KIND_DELEGATE, Member: "m", Input: in}}}}
	}
	f := project.New("r", "1.1")
	for i, ev := range []*teamv1.Event{
		{Kind: &teamv1.Event_Accepted{Accepted: &teamv1.Accepted{Agent: "top", Message: agent.UserMessage("u", "of the run")}}},
		{Kind: step(&teamv1.Input{Message: agent.UserMessage("i", "of the team")})},
		{Scope: "1", Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}},
		{Scope: "1", Kind: step(&teamv1.Input{})},
	} {
		ev.Seq, ev.Time, ev.Agent = int64(i)+1, timestamppb.Now(), "top"
		f.Apply(ev)
	}
	history := f.Task().GetHistory()
	if len(history) != 1 || agent.Text(history[0]) != "of the team" {
		t.Errorf("history %v", history)
	}
}
