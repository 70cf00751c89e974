package project

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
)

// TestPublic_StateOfTurns: what a provider wants back with a turn, such as thoughts,
// is no caller's business.
func TestPublic_StateOfTurns(t *testing.T) {
	ev := &teamv1.Event{Scope: "1", Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{
		Result: &teamv1.Ended_Turn{Turn: &teamv1.Turn{Text: "said", State: []byte("thought")}},
	}}}
	got := New("root", "").Public(ev)
	if b, _ := proto.Marshal(got); got.GetEnded().GetTurn().GetText() != "said" || strings.Contains(string(b), "thought") {
		t.Errorf("shown: %v", got)
	}
	if len(ev.GetEnded().GetTurn().GetState()) == 0 {
		t.Error("the record was changed")
	}
}

// TestR_000_42_MetadataOfARun: what is told of a run that goes on, with the task and
// with each event.
func TestR_000_42_MetadataOfARun(t *testing.T) {
	f := New("root", "")
	for i, ev := range []*teamv1.Event{
		{Kind: &teamv1.Event_Accepted{Accepted: &teamv1.Accepted{Limits: &teamv1.Limits{MaxTokens: proto.Int64(7)}}}},
		{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: []*teamv1.Step{{Id: "1", Kind: teamv1.Step_KIND_DELEGATE}, {Id: "2", Kind: teamv1.Step_KIND_DELEGATE}}}}},
	} {
		ev.Seq = int64(i) + 8
		f.Apply(ev)
	}
	started := &teamv1.Event{Seq: 4, Scope: "1", Agent: "lead/a", Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 2}}}

	t.Run("R-000-42 the task has its newest event and the whole run", func(t *testing.T) {
		r := runOf(t, f.metadata(nil, true))
		if r.GetSeq() != 9 || len(r.GetDelegations()) != 2 || r.GetLimits().GetMaxTokens() != 7 {
			t.Error(r)
		}
	})
	t.Run("R-000-42 an event has its own place and no more than itself", func(t *testing.T) {
		r := runOf(t, f.metadata(started, true))
		if r.GetSeq() != 4 || r.GetPath() != "lead/a" || r.GetDelegationId() != "root~1" || r.GetParent() != "root" || r.GetLimits() != nil {
			t.Error(r)
		}
		if d := r.GetDelegations(); len(d) != 1 || d[0].GetAttempts() != 2 {
			t.Error("R-002-8.1 the attempt: ", d)
		}
		if r := runOf(t, f.metadata(&teamv1.Event{Seq: 5, Agent: "lead"}, true)); r.GetParent() != "" || r.GetDelegationId() != "root" || len(r.GetDelegations()) != 0 {
			t.Error("of the root: ", r)
		}
	})
	t.Run("failures, questions and warnings are told unasked", func(t *testing.T) {
		for _, n := range [][3]int{{0, 0, 1}, {0, 1, 0}, {1, 0, 0}, {0, 1, 1}, {1, 1, 0}, {1, 1, 2}} {
			f := New("root", "")
			for range n[0] {
				f.Apply(&teamv1.Event{Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{}}})
			}
			f.failed, f.warnings = make([]*journal.Node, n[1]), make([]string, n[2])
			for i := range f.failed {
				f.failed[i] = &journal.Node{}
			}
			r := runOf(t, f.metadata(started, false))
			if got := [3]int{len(r.GetQuestions()), len(r.GetFailedDelegations()), len(r.GetWarnings())}; got != n {
				t.Error(got, "want", n)
			}
		}
	})
	t.Run("a run that waits for nothing it has asked needs input", func(t *testing.T) {
		if got := WaitingState(nil); got != a2av1.TaskState_TASK_STATE_INPUT_REQUIRED {
			t.Error(got)
		}
	})
}

// runOf reads the TeamRun of metadata.
func runOf(t *testing.T, metadata *structpb.Struct) *teamv1.TeamRun {
	t.Helper()
	b, err := metadata.GetFields()[TeamRunURI].MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	r := &teamv1.TeamRun{}
	if err := protojson.Unmarshal(b, r); err != nil {
		t.Fatal(err)
	}
	return r
}
