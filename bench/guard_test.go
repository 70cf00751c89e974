package bench

import (
	"testing"

	"github.com/agentteams/team-server/bench/measure"
)

// TestAllocations guards the shape of the costs with wide margins: allocations do not depend on what
// else the machine does. The benchmarks have the exact figures and the goals.
func TestAllocations(t *testing.T) {
	steps := func(n int) float64 {
		return allocations(t, storeRun(t, teamOf(t, relay{steps: n}, counting(), most()), n))
	}
	ten, hundred := steps(10), steps(100)
	if each := (hundred - ten) / 90; each > 220 {
		t.Errorf("a step costs %.1f allocations, want at most 220", each)
	}
	if ratio := (steps(190) - hundred) / (hundred - ten); ratio > 1.3 {
		t.Errorf("steps 101 to 190 cost %.2f times what steps 11 to 100 cost, want at most 1.3", ratio)
	}
	few, many := allocations(t, ledBy(t, 10).Loop()), allocations(t, ledBy(t, 1000).Loop()) // a store also encodes the members
	if many > 2*few {
		t.Errorf("a leader of 1,000 members costs %.0f allocations, of 10 members %.0f, want at most twice as many", many, few)
	}
	depth := func(n int) float64 {
		return allocations(t, measure.Job{Agent: nest(t, n), Input: "0", Answer: "1"}.Store(t))
	}
	if each := (depth(9) - depth(1)) / 8; each > 350 {
		t.Errorf("a level costs %.1f allocations, want at most 350", each)
	}
}

// allocations returns those of one call.
func allocations(t testing.TB, run measure.Call) float64 {
	t.Helper()
	return testing.AllocsPerRun(20, func() {
		if err := run(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	})
}
