package drive

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
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

// TestContributions_ToolCalls: a nested team remembers as many tool calls as it has noted.
func TestContributions_ToolCalls(t *testing.T) {
	for tools, want := range map[float64]int{0: 0, 1: 1, 20: 2} {
		v, seq := journal.New("r", journal.Whole), int64(0)
		apply := func(scope, by string, ev *teamv1.Event) {
			seq++
			ev.Seq, ev.Time, ev.Scope, ev.Agent = seq, timestamppb.Now(), scope, by
			v.Apply(ev)
		}
		decided := func(steps ...*teamv1.Step) *teamv1.Event {
			return &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: steps}}}
		}
		ended := func(e *teamv1.Ended) *teamv1.Event {
			e.Outcome = teamv1.Outcome_OUTCOME_SUCCEEDED
			return &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: e}}
		}
		details, err := structpb.NewStruct(map[string]any{"memory": true, "tools": tools})
		if err != nil {
			t.Fatal(err)
		}
		apply("", "t", decided(&teamv1.Step{Id: "1", Kind: teamv1.Step_KIND_DELEGATE, Member: "n", Input: &teamv1.Input{Message: agent.UserMessage("i", "x")}}))
		apply("1", "t/n", &teamv1.Event{Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Code: agent.NoteTeamPrepared, Details: details}}})
		apply("1", "t/n", decided(&teamv1.Step{Id: "1", Kind: teamv1.Step_KIND_MODEL}))
		calls := []*teamv1.ToolCall{{Id: "a", Name: "look"}, {Id: "b", Name: "look"}}
		apply("1.1", "t/n", ended(&teamv1.Ended{Result: &teamv1.Ended_Turn{Turn: &teamv1.Turn{ToolCalls: calls}}}))
		apply("1", "t/n", decided(&teamv1.Step{Id: "2", Kind: teamv1.Step_KIND_TOOL}, &teamv1.Step{Id: "3", Kind: teamv1.Step_KIND_TOOL}))
		apply("1.2", "t/n", ended(&teamv1.Ended{Result: &teamv1.Ended_Tool{Tool: &teamv1.ToolResult{Text: "1"}}}))
		apply("1.3", "t/n", ended(&teamv1.Ended{Result: &teamv1.Ended_Tool{Tool: &teamv1.ToolResult{Text: "2", IsError: true}}}))
		apply("1", "t/n", ended(&teamv1.Ended{Result: &teamv1.Ended_Reply{Reply: agent.NewMessage("done")}}))
		list := contributions(v)
		if len(list) != 1 || len(list[0].Messages) != 2 {
			t.Fatal(list)
		}
		got := list[0].Messages[1].GetMetadata().GetFields()[agent.ToolCallsKey].GetListValue().GetValues()
		if len(got) != want || want > 0 && !got[want-1].GetStructValue().GetFields()["error"].GetBoolValue() {
			t.Errorf("%v tools: %v", tools, got)
		}
	}
}
