package journal_test

import (
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
)

// record is a journal that is being written.
type record []*teamv1.Event

func (r *record) add(scope string, ev *teamv1.Event) int64 {
	ev.Seq, ev.Scope = int64(len(*r)+1), scope
	*r = append(*r, ev)
	return ev.GetSeq()
}

func (r *record) accept() {
	r.add("", &teamv1.Event{Kind: &teamv1.Event_Accepted{Accepted: &teamv1.Accepted{TaskId: "t"}}})
	r.add("", &teamv1.Event{Kind: &teamv1.Event_Claimed{Claimed: &teamv1.Claimed{Epoch: 1}}})
	r.start("")
}

func (r *record) decide(scope string, steps ...*teamv1.Step) {
	r.add(scope, &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: steps}}})
}

func (r *record) start(scope string) {
	r.add(scope, &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{
		Attempt: 2, Key: "k", Reserved: &teamv1.Spent{OutputTokens: 9}, Deadline: &timestamppb.Timestamp{Seconds: 1},
	}}})
}

func (r *record) end(scope string, outcome teamv1.Outcome) int64 {
	return r.add(scope, &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: outcome, Spent: &teamv1.Spent{CostMicros: 5}}}})
}

func delegate(id string, ref int64) *teamv1.Step {
	return &teamv1.Step{Id: id, Kind: teamv1.Step_KIND_STEP, Member: "m" + id, Input: &teamv1.Input{Ref: ref}}
}

func tool(id string) *teamv1.Step {
	return &teamv1.Step{Id: id, Kind: teamv1.Step_KIND_TOOL, Name: "dive"}
}

const (
	well     = teamv1.Outcome_OUTCOME_SUCCEEDED
	badly    = teamv1.Outcome_OUTCOME_FAILED
	canceled = teamv1.Outcome_OUTCOME_CANCELED
)

// keeps returns what is kept of a record. It fails unless the events are numbered from 2 on, and have neither costs nor
// times.
func keeps(t *testing.T, r record) (journal.Kept, []string) {
	t.Helper()
	kept, err := journal.Keep(r)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i, ev := range kept.Events {
		if ev.GetSeq() != int64(i+2) {
			t.Errorf("event %d has the number %d", i+2, ev.GetSeq())
		}
		if ev.GetEnded().GetSpent() != nil || ev.GetStarted().GetReserved() != nil || ev.GetStarted().GetDeadline() != nil {
			t.Errorf("what the old run has spent, or its time, is kept: %v", ev)
		}
		kind := string(ev.ProtoReflect().WhichOneof(ev.ProtoReflect().Descriptor().Oneofs().ByName("kind")).Name())
		names = append(names, kind+" "+ev.GetScope())
	}
	return kept, names
}

// TestKeep_ParallelSteps: of parallel steps, those that have succeeded are kept, before and after the failure of another
// one. References count with the new numbers.
func TestKeep_ParallelSteps(t *testing.T) {
	var r record
	r.accept()
	r.decide("", delegate("1", 0))
	r.start("1")
	one := r.end("1", well)
	r.decide("", delegate("2", one), delegate("3", one))
	r.start("2")
	r.start("3")
	r.end("2", badly)
	r.end("3", well)
	r.end("", badly)
	kept, names := keeps(t, r)
	want := []string{"decided ", "started 1", "ended 1", "decided ", "started 3", "ended 3"}
	if !slices.Equal(names, want) || !slices.Equal(kept.Steps, []string{"1", "3"}) || !slices.Equal(kept.Repeated, []string{"2"}) {
		t.Errorf("kept are %v, steps %v, repeated %v; want %v", names, kept.Steps, kept.Repeated, want)
	}
	if ref := kept.Events[3].GetDecided().GetSteps()[1].GetInput().GetRef(); ref != 4 {
		t.Errorf("the input of a step refers to event %d, want 4", ref)
	}
	if r[6].GetDecided().GetSteps()[1].GetInput().GetRef() != one || r[5].GetEnded().GetSpent() == nil {
		t.Error("the old journal has changed")
	}
}

// TestKeep_FailuresThatWereDealtWith: a failure after which its scope has decided something else is kept.
func TestKeep_FailuresThatWereDealtWith(t *testing.T) {
	var r record
	r.accept()
	r.decide("", delegate("1", 0))
	r.start("1")
	r.end("1", badly)
	r.decide("", delegate("2", 0))
	r.start("2")
	r.end("2", badly)
	r.add("", &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Failure: &teamv1.Error{Reason: "X"}}}})
	r.end("", badly)
	kept, names := keeps(t, r)
	if want := []string{"decided ", "started 1", "ended 1", "decided "}; !slices.Equal(names, want) || !slices.Equal(kept.Repeated, []string{"2"}) {
		t.Errorf("kept are %v, want %v; repeated %v", names, want, kept.Repeated)
	}
}

// TestKeep_NothingChanges: a run whose teams have gone on after each failure and then decided to fail would only fail again.
// One that was canceled continues.
func TestKeep_NothingChanges(t *testing.T) {
	fails := func(r *record, scope string) {
		r.add(scope, &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Failure: &teamv1.Error{Reason: "X"}}}})
		r.end(scope, badly)
	}
	for name, ends := range map[string]func(r *record){
		"the run": func(r *record) { fails(r, "") },
		"a nested team": func(r *record) {
			r.decide("", delegate("3", 0))
			r.start("3")
			r.decide("3")
			fails(r, "3")
			fails(r, "")
		},
		"": func(r *record) { r.end("", canceled) },
	} {
		var r record
		r.accept()
		r.decide("", delegate("1", 0))
		r.start("1")
		r.end("1", badly)
		r.decide("", delegate("2", 0))
		r.start("2")
		r.end("2", well)
		ends(&r)
		if _, err := journal.Keep(r); (err != nil) != (name != "") || err != nil && !errors.Is(err, journal.ErrDecided) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestKeep_Nested: a team that failed continues behind what it has kept. A call of a tool that was cut off has begun.
func TestKeep_Nested(t *testing.T) {
	var r record
	r.accept()
	r.decide("", delegate("1", 0))
	r.start("1")
	r.add("1", &teamv1.Event{Kind: &teamv1.Event_Observed{Observed: &teamv1.Observed{}}})
	r.add("1", &teamv1.Event{Kind: &teamv1.Event_Checked{Checked: &teamv1.Checked{Stage: teamv1.Checked_STAGE_INPUT}}})
	r.add("1", &teamv1.Event{Kind: &teamv1.Event_Checked{Checked: &teamv1.Checked{Stage: teamv1.Checked_STAGE_OUTPUT, Blocked: true}}})
	r.decide("1", delegate("1", 0), tool("2"), delegate("3", 0))
	r.start("1.1")
	r.add("1.1", &teamv1.Event{Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{Text: "x"}}})
	r.end("1.1", well)
	r.start("1.2")
	r.start("1.3")
	r.add("", &teamv1.Event{Kind: &teamv1.Event_Commanded{Commanded: &teamv1.Commanded{Command: teamv1.Commanded_COMMAND_CANCEL}}})
	for _, scope := range []string{"1.2", "1.3", "1", ""} {
		r.end(scope, canceled)
	}
	kept, names := keeps(t, r)
	want := []string{"decided ", "started 1", "checked 1", "decided 1", "started 1.1", "ended 1.1", "started 1.2"}
	if !slices.Equal(names, want) || !slices.Equal(kept.Steps, []string{"1.1"}) || !slices.Equal(kept.Repeated, []string{"1", "1.2", "1.3"}) {
		t.Errorf("kept are %v, steps %v, repeated %v; want %v", names, kept.Steps, kept.Repeated, want)
	}
	if s := kept.Events[6].GetStarted(); s.GetAttempt() != 1 || s.GetKey() != "k" {
		t.Errorf("the call has begun as %v", s)
	}
}

// TestKeep_Answers: answers of people are kept without what they grant beyond the call that they are about; answers about
// budgets, and questions without an answer, are not.
func TestKeep_Answers(t *testing.T) {
	var r record
	ask := func(scope, id string, kind teamv1.Asked_Kind) {
		r.add(scope, &teamv1.Event{Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{Question: id, Kind: kind}}})
	}
	say := func(scope, id string) {
		r.add(scope, &teamv1.Event{Kind: &teamv1.Event_Answered{Answered: &teamv1.Answered{
			Question: id, Inbound: 4, Grant: &teamv1.Spent{CostMicros: 1}, Approval: &teamv1.Approval{Decision: teamv1.Approval_DECISION_APPROVE_ALL}, Message: &a2av1.Message{},
		}}})
	}
	r.accept()
	r.decide("", tool("1"), tool("2"))
	ask("", "own", teamv1.Asked_KIND_INPUT)
	say("", "own")
	ask("", "budget", teamv1.Asked_KIND_BUDGET)
	say("", "budget")
	ask("1", "may", teamv1.Asked_KIND_APPROVAL)
	say("1", "may")
	r.start("1")
	r.end("1", well)
	ask("2", "may too", teamv1.Asked_KIND_APPROVAL)
	ask("", "open", teamv1.Asked_KIND_INPUT)
	r.add("", &teamv1.Event{Kind: &teamv1.Event_Received{Received: &teamv1.Received{Message: &a2av1.Message{}, Inbound: 5}}})
	r.end("", canceled)
	kept, names := keeps(t, r)
	want := []string{"decided ", "asked ", "answered ", "asked 1", "answered 1", "started 1", "ended 1", "received "}
	if !slices.Equal(names, want) {
		t.Errorf("kept are %v, want %v", names, want)
	}
	for _, ev := range kept.Events {
		if a := ev.GetAnswered(); a != nil && (a.GetInbound() != 0 || a.GetGrant() != nil || a.GetApproval().GetDecision() != teamv1.Approval_DECISION_APPROVE) {
			t.Errorf("an answer is kept as %v", a)
		}
		if ev.GetReceived().GetInbound() != 0 {
			t.Errorf("a message is kept as %v", ev)
		}
	}
}

// TestKeep_LostReferences: a result that refers to what is not kept is an error, not another result.
func TestKeep_LostReferences(t *testing.T) {
	var r record
	r.accept()
	r.decide("", delegate("1", 0), delegate("2", 0))
	lost := r.end("2", badly)
	r.add("1", &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: well, Result: &teamv1.Ended_ReplyRef{ReplyRef: lost}}}})
	r.end("", badly)
	if _, err := journal.Keep(r); !errors.Is(err, journal.ErrReference) {
		t.Errorf("the error is %v", err)
	}
}
