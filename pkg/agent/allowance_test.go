package agent

import (
	"sync"
	"sync/atomic"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

func TestAllowance_C_07(t *testing.T) {
	t.Run("all of it or nothing, in every node above", func(t *testing.T) {
		root := (*Allowance)(nil).Child("root", Counts{CountSteps: 3, CountDelegations: 1}, Counts{})
		low := root.Child("root/low", Counts{CountSteps: 2}, Counts{})
		if err := low.Take(CountSteps, CountDelegations); err != nil {
			t.Fatal(err)
		}
		err := AsError(low.Take(CountSteps, CountDelegations))
		if err.Reason != ReasonMaxDelegations || err.Details[DetailLimit] != "max_delegations" || err.Details[DetailValue] != "1" || err.Details[DetailSetBy] != "root" {
			t.Error(err, err.Details)
		}
		if !Binds(err, "root") || !Binds(err, "root/low") || Binds(err, "rooter") {
			t.Error("it binds root and what is below it, and nobody else")
		}
		if low.Used() != (Counts{CountSteps: 1, CountDelegations: 1}) || root.Used() != low.Used() {
			t.Error(low.Used(), root.Used())
		}
		if err := low.Take(CountSteps); err != nil {
			t.Error(err)
		}
		if err := AsError(low.Take(CountSteps)); err.Reason != ReasonMaxIterations || err.Details[DetailSetBy] != "root/low" || Binds(err, "root") {
			t.Error(err, err.Details)
		}
		if err := root.Take(CountSteps, CountTurns, CountHandoffs); err != nil {
			t.Error("the limit of a member is none of those above", err)
		}
	})
	t.Run("what is gone already counts", func(t *testing.T) {
		if err := (*Allowance)(nil).Child("a", Counts{CountTurns: 2}, Counts{CountTurns: 2}).Take(CountTurns); err == nil {
			t.Error("taken")
		}
	})
	t.Run("many at the same time take no more than there is", func(t *testing.T) {
		root := (*Allowance)(nil).Child("a", Counts{CountHandoffs: 50}, Counts{})
		var got atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			low := root.Child("b", Counts{}, Counts{})
			wg.Go(func() {
				for range 20 {
					if low.Take(CountHandoffs) == nil {
						got.Add(1)
					}
				}
			})
		}
		if wg.Wait(); got.Load() != 50 {
			t.Error(got.Load())
		}
	})
	t.Run("a decision is one step however many begin with it, a further attempt nothing", func(t *testing.T) {
		step := func(id string, kind teamv1.Step_Kind, call string) *teamv1.Step {
			return &teamv1.Step{Id: id, Kind: kind, CallId: call}
		}
		decided := func(scope string, steps ...*teamv1.Step) *teamv1.Event {
			return &teamv1.Event{Scope: scope, Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: steps}}}
		}
		started := func(scope string) *teamv1.Event {
			return &teamv1.Event{Scope: scope, Kind: &teamv1.Event_Started{Started: &teamv1.Started{}}}
		}
		got := CountsOn([]*teamv1.Event{
			decided("", step("1", teamv1.Step_KIND_MODEL, "")), started("1"),
			decided("", step("2", teamv1.Step_KIND_DELEGATE, "c1"), step("3", teamv1.Step_KIND_DELEGATE, "c2"), step("4", teamv1.Step_KIND_DELEGATE, "c3")),
			started("2"), started("3"), started("3"), // 4 has not begun
			decided("2", step("1", teamv1.Step_KIND_TRANSFER, "")), started("2.1"),
			decided("2", step("2", teamv1.Step_KIND_TOOL, "c"), step("3", teamv1.Step_KIND_HUMAN, "")), started("2.2"), started("2.3"),
			decided("3", step("1", teamv1.Step_KIND_STEP, "")), started("3.1"),
		})
		if want := (Counts{CountSteps: 3, CountTurns: 1, CountDelegations: 2, CountHandoffs: 1}); got != want {
			t.Error(got, want)
		}
	})
}
