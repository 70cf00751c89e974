package step

import (
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// TestExpiredToolQuestion: an expiry is no answer of people, which would count for a call begun anew.
func TestExpiredToolQuestion(t *testing.T) {
	p := &Past{}
	q := &teamv1.Asked{ToolQuestion: &teamv1.ToolQuestion{Message: "How many?"}}
	p.applyToolAnswer(q, nil)
	p.applyToolAnswer(q, &teamv1.Answered{ToolAnswer: &teamv1.ToolAnswer{Action: teamv1.ToolAnswer_ACTION_CANCEL}})
	for i, expired := range []bool{true, false} {
		if a := p.ToolAnswers[i]; a.Expired != expired || a.Answer.GetAction() != teamv1.ToolAnswer_ACTION_CANCEL {
			t.Errorf("answer %d: %v", i, a)
		}
	}
}
