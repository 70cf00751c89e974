package drive

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

// TestSaid_AnAnswerToAQuestionThatWasAskedTwiceOnce: one answer closes both.
func TestSaid_AnAnswerToAQuestionThatWasAskedTwiceOnce(t *testing.T) {
	asks := &teamv1.Event_Asked{Asked: &teamv1.Asked{Question: "q", Message: agent.NewMessage("which?")}}
	v := journal.New("r", journal.Whole)
	for i, ev := range []*teamv1.Event{
		{Kind: asks}, {Kind: asks}, {Kind: &teamv1.Event_Answered{Answered: &teamv1.Answered{Question: "q", Message: agent.UserMessage("a", "this")}}},
	} {
		ev.Seq, ev.Time = int64(i)+1, timestamppb.Now()
		v.Apply(ev)
	}
	var texts []string
	for _, m := range said(v.Top) {
		texts = append(texts, agent.Text(m))
	}
	if !slices.Equal(texts, []string{"which?", "which?", "this"}) {
		t.Errorf("remembered: %q", texts)
	}
}
