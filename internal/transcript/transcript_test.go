package transcript

import (
	"strings"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// TestPrinter_WorkThatGoesOn: work that became a separate task is not printed as done.
func TestPrinter_WorkThatGoesOn(t *testing.T) {
	var talk strings.Builder
	run := &Printer{Talk: &talk}
	for i, ev := range []*teamv1.Event{
		{Agent: "desk", Kind: &teamv1.Event_Accepted{Accepted: &teamv1.Accepted{TaskId: "r"}}},
		{Agent: "desk", Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: []*teamv1.Step{{Id: "1", Kind: teamv1.Step_KIND_DELEGATE, Member: "ann"}}}}},
		{Agent: "desk/ann", Scope: "1", Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}},
		{Agent: "desk/ann", Scope: "1", Kind: &teamv1.Event_Spawned{Spawned: &teamv1.Spawned{TaskId: "other", Member: "ann"}}},
		{Agent: "desk/ann", Scope: "1", Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED}}},
	} {
		ev.Seq = int64(i + 1)
		run.Event("r", ev)
	}
	if got := talk.String(); !strings.Contains(got, "continues as task other") || strings.Contains(got, "done") {
		t.Errorf("told\n%s", got)
	}
}

// TestPrinter_PeopleAnswer: answers are printed as those of people, whichever agent asked.
func TestPrinter_PeopleAnswer(t *testing.T) {
	var talk strings.Builder
	run := &Printer{Talk: &talk}
	for _, ev := range []*teamv1.Event{
		{Seq: 1, Agent: "desk", Kind: &teamv1.Event_Accepted{Accepted: &teamv1.Accepted{TaskId: "r"}}},
		{Seq: 2, Agent: "desk/ann", Scope: "1", Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{Question: "q", Message: agent.NewMessage("Go?")}}},
		{Seq: 3, Agent: "desk", Kind: &teamv1.Event_Answered{Answered: &teamv1.Answered{Question: "q", Message: agent.NewMessage("yes")}}},
	} {
		run.Event("r", ev)
	}
	if got := talk.String(); !strings.Contains(got, "ann                asks      Go?") || !strings.Contains(got, "people             answered  yes") {
		t.Errorf("told\n%s", got)
	}
}
