package tasks

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
)

// TestTrace_TreeAndTimeline: steps are below what decided on them, with the part of the time in which they worked.
func TestTrace_TreeAndTimeline(t *testing.T) {
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	stamp := func(s float64) *timestamppb.Timestamp {
		return timestamppb.New(begin.Add(time.Duration(s * float64(time.Second))))
	}
	trace := &teamv1.Trace{Step: &teamv1.TraceStep{
		Id: "t", Path: "desk", State: teamv1.TraceStep_STATE_RUNNING, Decided: stamp(0), Started: stamp(0), Spent: &teamv1.Spent{InputTokens: 5, OutputTokens: 7, CostMicros: 250_000},
		Decisions: []*teamv1.TraceDecision{{Reason: "rule first", Steps: []string{"t~1"}}},
		Steps: []*teamv1.TraceStep{
			{Id: "t~1", Kind: teamv1.Step_KIND_DELEGATE, Member: "a\x1b[31m", State: teamv1.TraceStep_STATE_ENDED, Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Decided: stamp(0), Started: stamp(1), Ended: stamp(2), Steps: []*teamv1.TraceStep{
				{Id: "t~1.1", Kind: teamv1.Step_KIND_MODEL, State: teamv1.TraceStep_STATE_ENDED, Outcome: teamv1.Outcome_OUTCOME_FAILED, Decided: stamp(1), Started: stamp(1), Ended: stamp(1.5), Attempts: []*teamv1.TraceAttempt{{Model: "m"}, {Model: "n"}}, Error: &teamv1.Error{Reason: "UNAVAILABLE", Message: "no"}},
			}},
			{Id: "t~2", Kind: teamv1.Step_KIND_TOOL, Name: "dive", State: teamv1.TraceStep_STATE_PENDING, Decided: stamp(3)},
		},
	}}
	var out strings.Builder
	if err := newTree(trace, begin.Add(4*time.Second)).print(&console.Console{Out: &out}); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"START  TOOK   TIMELINE                    STEP         STATE                COST                 WHY",
		"0.00s  4.00s  |========================|  desk         running              12 tokens, 0.25 USD  ",
		"1.00s  1.00s  |      ======            |    a\uFFFD[31m     succeeded            -                    rule first",
		"1.00s  0.50s  |      ===               |      model n  failed (2 attempts)  -                    UNAVAILABLE: no",
		"-      1.00s  |                  ======|    tool dive  pending              -                    ",
	}, "\n") + "\n"
	if got := out.String(); got != want {
		t.Errorf("the trace is\n%s\nwant\n%s", got, want)
	}
}
