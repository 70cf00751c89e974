package account

import (
	"math"
	"testing"
	"time"

	"github.com/agentteams/team-server/pkg/agent"
)

// TestLedgerSaturates books costs that do not fit an int64, as a faulty peer may report them, in many runs: the
// account has spent all that it may, and more runs do not make it less.
func TestLedgerSaturates(t *testing.T) {
	const day = "2026-03-02"
	huge := agent.Cost{Tokens: math.MaxInt64, Micros: math.MaxInt64}
	limits := Limits{PerDay: agent.Cost{Tokens: most, Micros: most}, InFlight: agent.NoLimit(), Zone: time.UTC}
	sums := &Sums{Days: map[string]Use{}}
	for run := range 2000 {
		Booking{Rows: []Row{{Day: day, Spent: huge}}}.Apply(nil, sums)
		r := &Reserve{Day: day, Least: agent.Cost{Tokens: 1}, Enough: agent.Cost{Tokens: 1}, Most: agent.Cost{Tokens: 1}, Limits: limits, Last: true}
		if b := (Booking{Reserve: r}).Apply(nil, sums); b.OK {
			t.Fatalf("after %d runs there is something left: %+v", run+1, b.Use)
		}
	}
	if e := limits.reached("acme", sums.Days[day], agent.Cost{Tokens: 1}, time.Now()); e.Details[agent.DetailLimit] != "max_tokens_per_day" {
		t.Error(e)
	}
}
