package a2a

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
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

// TestR_000_42_MetadataOfARun: what is told of a run that goes on, with the task and
// with each event.
func TestR_000_42_MetadataOfARun(t *testing.T) {
	f := NewFold("root", "")
	f.seq, f.accepted = 9, &teamv1.Accepted{Limits: &teamv1.Limits{MaxTokens: proto.Int64(7)}}
	f.delegations = []*teamv1.Delegation{{Id: "root~1"}, {Id: "root~2"}}
	started := &teamv1.Event{Seq: 4, Scope: "1", Agent: "lead/a", Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 2}}}

	t.Run("R-000-42 the task has its newest event and the whole run", func(t *testing.T) {
		r := RunOf(f.metadata(nil, true))
		if r.GetSeq() != 9 || len(r.GetDelegations()) != 2 || r.GetLimits().GetMaxTokens() != 7 {
			t.Error(r)
		}
	})
	t.Run("R-000-42 an event has its own place and no more than itself", func(t *testing.T) {
		r := RunOf(f.metadata(started, true))
		if r.GetSeq() != 4 || r.GetPath() != "lead/a" || r.GetDelegationId() != "root~1" || r.GetParent() != "root" || r.GetLimits() != nil {
			t.Error(r)
		}
		if d := r.GetDelegations(); len(d) != 1 || d[0].GetAttempts() != 2 {
			t.Error("R-002-8.1 the attempt: ", d)
		}
		if r := RunOf(f.metadata(&teamv1.Event{Seq: 5, Agent: "lead"}, true)); r.GetParent() != "" || r.GetDelegationId() != "root" || len(r.GetDelegations()) != 0 {
			t.Error("of the root: ", r)
		}
	})
	t.Run("failures, questions and warnings are told unasked", func(t *testing.T) {
		for _, n := range [][3]int{{0, 0, 1}, {0, 1, 0}, {1, 0, 0}, {0, 1, 1}, {1, 1, 0}, {1, 1, 2}} {
			f := NewFold("root", "")
			f.questions, f.failed, f.warnings = make([]*teamv1.Question, n[0]), make([]*teamv1.Delegation, n[1]), make([]string, n[2])
			for i := range f.questions {
				f.questions[i] = &teamv1.Question{}
			}
			for i := range f.failed {
				f.failed[i] = &teamv1.Delegation{}
			}
			r := RunOf(f.metadata(started, false))
			if got := [3]int{len(r.GetQuestions()), len(r.GetFailedDelegations()), len(r.GetWarnings())}; got != n {
				t.Error(got, "want", n)
			}
		}
	})
	t.Run("a run that waits for nothing it has asked needs input", func(t *testing.T) {
		if got := NewFold("root", "").waitingState(); got != a2av1.TaskState_TASK_STATE_INPUT_REQUIRED {
			t.Error(got)
		}
	})
}

func TestC_13_TransfersOfAMessage(t *testing.T) {
	routing, err := structpb.NewStruct(map[string]any{"transfers": []any{map[string]any{"id": "b", "description": "knows"}}})
	if err != nil {
		t.Fatal(err)
	}
	m := &a2av1.Message{Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{RoutingURI: structpb.NewStructValue(routing)}}}
	if got := transfersOf(m); len(got) != 1 || got[0].GetId() != "b" || got[0].GetDescription() != "knows" {
		t.Error(got)
	}
	if got := transfersOf(&a2av1.Message{}); got != nil {
		t.Error(got)
	}
}

func TestA_23_OptionsOfClosedQuestions(t *testing.T) {
	options, err := structpb.NewValue(map[string]any{"options": []any{"yes", "no"}})
	if err != nil {
		t.Fatal(err)
	}
	asked := &a2av1.Message{Parts: []*a2av1.Part{{Content: &a2av1.Part_Data{Data: options}}}}
	for kind, closed := range map[teamv1.Asked_Kind]bool{
		teamv1.Asked_KIND_APPROVAL: true, teamv1.Asked_KIND_OUTCOME: true, teamv1.Asked_KIND_INPUT: false,
	} {
		q := &teamv1.Question{Kind: kind, Message: asked}
		if !chosen(q, agent.NewMessage(" yes\n")) || chosen(q, agent.NewMessage("maybe")) == closed {
			t.Error(kind)
		}
	}
}

func TestA_23_WhichQuestion(t *testing.T) {
	f := NewFold("root", "")
	f.questions = []*teamv1.Question{{Question: "q1"}, {Question: "q2"}}
	for named, want := range map[string]string{"": "is needed, since several questions are open", "q3": "names no open question"} {
		if _, err := f.question(named); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", named, err, want)
		}
	}
}

func TestClip(t *testing.T) {
	for n, want := range map[int]int{127: 127, 128: 128, 129: 128 + len("…")} {
		if got := clip(strings.Repeat("x", n)); len(got) != want {
			t.Errorf("%d bytes become %d, want %d", n, len(got), want)
		}
	}
}
