package memory

import (
	"fmt"
	"hash/maphash"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// noted is a record of n notes.
func noted(n int, text string) record {
	var r record
	for i := range n {
		r.events = append(r.events, &teamv1.Event{
			Seq: int64(i) + 1, Time: timestamppb.Now(), Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Text: text + fmt.Sprint(i)}},
		})
	}
	return r
}

func TestRecord_Packed(t *testing.T) {
	plain := noted(300, "text ")
	packed := plain
	packed.pack()
	if packed.packed == nil || packed.len() != 300 {
		t.Fatalf("packed %v, %d events", packed.packed != nil, packed.len())
	}
	for _, seq := range []int64{-1, 0, 1, 127, 128, 299, 300, 301} {
		want, got := slices.Collect(plain.after(seq)), slices.Collect(packed.after(seq))
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("after %d: %s", seq, diff)
		}
	}
	if diff := cmp.Diff(plain.events, packed.all(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	for ev := range packed.after(0) {
		if ev.GetSeq() != 1 {
			t.Error("went on after a break: ", ev)
		}
		break
	}
	t.Run("a text that cannot be encoded leaves it as it is", func(t *testing.T) {
		r := noted(2, "\xff")
		if r.pack(); r.packed != nil || len(r.all()) != 2 {
			t.Errorf("packed %v", r.packed)
		}
	})
}

// TestMemory_PackedRuns: a task that ended long ago reads as it did right after its end.
func TestMemory_PackedRuns(t *testing.T) {
	s := New(Config{})
	run := func(i int) a2a.Key {
		acc := &teamv1.Accepted{TaskId: fmt.Sprintf("t%03d", i), Agent: "a", Owner: "acme/ann", Message: agent.UserMessage(fmt.Sprint("m", i), "do it")}
		if _, _, err := s.Create(t.Context(), a2a.New{Owner: acc.GetOwner(), MessageID: acc.GetMessage().GetMessageId(), Accepted: acc}); err != nil {
			t.Fatal(err)
		}
		claims, _, err := s.Claim(t.Context(), "r", a2a.NewRoom(1, nil))
		if err != nil {
			t.Fatal(err)
		}
		if err := claims[0].Journal.Append(t.Context(),
			&teamv1.Event{Agent: "a", Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}},
			&teamv1.Event{Agent: "a", Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{
				Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Reply{Reply: agent.NewMessage("done")},
			}}}); err != nil {
			t.Fatal(err)
		}
		return a2a.Key{Owner: acc.GetOwner(), ID: acc.GetTaskId()}
	}
	first := run(0)
	task, seq, err := s.Task(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	events, err := s.Events(t.Context(), first, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for i := range decodedRuns {
		run(i + 1)
	}
	if s.runs[first.ID].record.packed == nil {
		t.Fatal("not packed")
	}
	again, seqAgain, err := s.Task(t.Context(), first)
	if diff := cmp.Diff(task, again, protocmp.Transform()); diff != "" || seq != seqAgain || err != nil {
		t.Errorf("seq %d, %d, %v: %s", seq, seqAgain, err, diff)
	}
	eventsAgain, err := s.Events(t.Context(), first, 0, 100)
	if diff := cmp.Diff(events, eventsAgain, protocmp.Transform()); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
	page, err := s.List(t.Context(), first.Owner, a2a.Filter{PageSize: 100})
	if err != nil || len(page.Tasks) != decodedRuns+1 {
		t.Errorf("%d tasks are listed, %v", len(page.Tasks), err)
	}
}

func TestSharedSizes(t *testing.T) {
	var s sharedSizes
	s.seed = maphash.MakeSeed()
	small := &teamv1.Observed{Members: []*teamv1.Observed_Member{{Id: "a"}}}
	large := &teamv1.Observed{Members: slices.Repeat(small.GetMembers(), 200)}
	note := &teamv1.Noted{Code: "TEAM_PREPARED", Details: &structpb.Struct{Fields: map[string]*structpb.Value{"members": structpb.NewNumberValue(3)}}}
	for _, o := range []*teamv1.Observed{{}, small, large, large, small} {
		events := []*teamv1.Event{
			{Scope: "1.2", Agent: "lead/a", Kind: &teamv1.Event_Observed{Observed: o}},
			{Scope: "1", Kind: &teamv1.Event_Noted{Noted: note}}, {Agent: "lead/b", Kind: &teamv1.Event_Noted{Noted: note}},
			{Seq: 3, Time: timestamppb.Now(), Kind: &teamv1.Event_Observed{Observed: o}},
			{Agent: "lead", Kind: &teamv1.Event_Claimed{Claimed: &teamv1.Claimed{Epoch: 7}}},
		}
		if got, want := s.of(events), store.Size(events); got != want {
			t.Errorf("%d members: %d, want %d", len(o.GetMembers()), got, want)
		}
	}
}
