package a2a

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// TestPublic_StateOfTurns: what a provider wants back with a turn, such as thoughts,
// is no caller's business.
func TestPublic_StateOfTurns(t *testing.T) {
	ev := &teamv1.Event{Scope: "1", Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{
		Result: &teamv1.Ended_Turn{Turn: &teamv1.Turn{Text: "said", State: []byte("thought")}},
	}}}
	got := NewFold("root", "").public(ev)
	if b, _ := proto.Marshal(got); got.GetEnded().GetTurn().GetText() != "said" || strings.Contains(string(b), "thought") {
		t.Errorf("shown: %v", got)
	}
	if len(ev.GetEnded().GetTurn().GetState()) == 0 {
		t.Error("the record was changed")
	}
}
