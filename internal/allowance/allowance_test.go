package allowance

import (
	"sync"
	"sync/atomic"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

func TestAllowance_C_07(t *testing.T) {
	t.Run("all of it or nothing, in every node above", func(t *testing.T) {
		root := (*Allowance)(nil).Child("root", Counts{Steps: 3, Delegations: 1}, Counts{})
		low := root.Child("root/low", Counts{Steps: 2}, Counts{})
		if err := low.Take(Steps, Delegations); err != nil {
			t.Fatal(err)
		}
		err := agent.AsError(low.Take(Steps, Delegations))
		if err.Reason != agent.ReasonMaxDelegations || err.Details[agent.DetailLimit] != "max_delegations" || err.Details[agent.DetailValue] != "1" || err.Details[agent.DetailSetBy] != "root" {
			t.Error(err, err.Details)
		}
		if !agent.Binds(err, "root") || !agent.Binds(err, "root/low") || agent.Binds(err, "rooter") {
			t.Error("it binds root and what is below it, and nobody else")
		}
		if low.Used() != (Counts{Steps: 1, Delegations: 1}) || root.Used() != low.Used() {
			t.Error(low.Used(), root.Used())
		}
		if err := low.Take(Steps); err != nil {
			t.Error(err)
		}
		if err := agent.AsError(low.Take(Steps)); err.Reason != agent.ReasonMaxIterations || err.Details[agent.DetailSetBy] != "root/low" || agent.Binds(err, "root") {
			t.Error(err, err.Details)
		}
		if err := root.Take(Steps, Turns, Handoffs); err != nil {
			t.Error("the limit of a member is none of those above", err)
		}
	})
	t.Run("what is gone already counts", func(t *testing.T) {
		if err := (*Allowance)(nil).Child("a", Counts{Turns: 2}, Counts{Turns: 2}).Take(Turns); err == nil {
			t.Error("taken")
		}
	})
	t.Run("many at the same time take no more than there is", func(t *testing.T) {
		root := (*Allowance)(nil).Child("a", Counts{Handoffs: 50}, Counts{})
		var got atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			low := root.Child("b", Counts{}, Counts{})
			wg.Go(func() {
				for range 20 {
					if low.Take(Handoffs) == nil {
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
		if want := (Counts{Steps: 3, Turns: 1, Delegations: 2, Handoffs: 1}); got != want {
			t.Error(got, want)
		}
	})
}
