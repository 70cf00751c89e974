package team_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

func TestJoinResults(t *testing.T) {
	t.Run("C-16 in step order under the members' ids", func(t *testing.T) {
		got := team.Joined([]*team.StepState{ended("researcher", "", "Facts."), ended("critic", "", "7 of 10")})
		want := agent.NewMessage("## researcher\n\nFacts.\n\n## critic\n\n7 of 10")
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("C-16 one result stays the message it is", func(t *testing.T) {
		st := ended("researcher", "", "Facts.")
		if got := team.Joined([]*team.StepState{st}); got != st.Message {
			t.Errorf("a copy: %v", got)
		}
	})
	t.Run("C-16 two steps of one member are told apart", func(t *testing.T) {
		got := team.Joined([]*team.StepState{ended("writer", "de", "Hallo"), ended("writer", "fr", "Salut"), ended("critic", "c", "ok")})
		if want := "## writer (de)\n\nHallo\n\n## writer (fr)\n\nSalut\n\n## critic\n\nok"; agent.Text(got) != want {
			t.Errorf("%q", agent.Text(got))
		}
	})
	t.Run("C-16 data and files keep their place", func(t *testing.T) {
		data := &a2av1.Part{Content: &a2av1.Part_Data{Data: structpb.NewNumberValue(7)}}
		critic := ended("critic", "", "")
		critic.Message.Parts = []*a2av1.Part{data, data}
		got := team.Joined([]*team.StepState{ended("a", "", "x"), critic, ended("b", "", "y")})
		want := []*a2av1.Part{agent.TextParts("## a\n\nx\n\n## critic")[0], data, data, agent.TextParts("## b\n\ny")[0]}
		if diff := cmp.Diff(want, got.GetParts(), protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("C-16 R-002-39 what is not there is said", func(t *testing.T) {
		empty := ended("b", "", "")
		empty.Message = nil
		got := team.Joined([]*team.StepState{brokenStep("a", "", agent.Errorf(0, agent.ReasonTimeout, "too slow")), empty})
		if want := "## a\n\n(failed: too slow)\n\n## b\n\n(no content)"; agent.Text(got) != want {
			t.Errorf("%q", agent.Text(got))
		}
	})
}
