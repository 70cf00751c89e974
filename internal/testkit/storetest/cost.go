package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cost"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
)

// noonHour is the hour of NewClock, and noonDay selects its day.
var (
	noonHour = cost.HourOf(NewClock().Now())
	noonDay  = cost.Query{From: cost.DayOf(noonHour), Until: cost.DayOf(noonHour) + 24}
)

// begun is the beginning of an attempt at a turn of a model.
func begun(scope, path, model string) *teamv1.Event {
	return &teamv1.Event{Scope: scope, Agent: path, Kind: &teamv1.Event_Started{Started: &teamv1.Started{
		Attempt: 1, Model: model, Reserved: &teamv1.Spent{InputTokens: 900, OutputTokens: 100, CostMicros: 5000, ModelCalls: 1},
	}}}
}

// paid is the end of a step with its cost.
func paid(scope, path string, s *teamv1.Spent) *teamv1.Event {
	return &teamv1.Event{Scope: scope, Agent: path, Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Spent: s}}}
}

// finished is the end of a run with its cost.
func finished(s *teamv1.Spent) *teamv1.Event {
	ev := succeeded()
	ev.GetEnded().Spent = s
	return ev
}

// used is the cost of a turn.
func used(n int64) *teamv1.Spent {
	return &teamv1.Spent{InputTokens: n, OutputTokens: 2 * n, CostMicros: 10 * n, ModelCalls: 1}
}

// sumAt is a sum of team a.
func sumAt(hour int64, account, path, model string, s *teamv1.Spent) cost.Sum {
	return cost.Sum{Key: cost.Key{Hour: hour, Account: account, Path: path, Team: "a", Model: model}, Amounts: cost.AmountsOf(s)}
}

// costs wants sums.
func (r *rig) costs(q cost.Query, want ...cost.Sum) {
	r.Helper()
	got, err := r.Costs(r.ctx(), q)
	if err != nil {
		r.Fatalf("Costs: %v", err)
	}
	if diff := cmp.Diff(cost.Merge(want, nil), cost.Merge(got, nil)); diff != "" {
		r.Fatalf("Costs(%+v) (-want +got):\n%s", q, diff)
	}
}

// costs tests what stores keep of what runs have spent.
func costs(t *testing.T, open Open) {
	noon, day := noonHour, noonDay
	t.Run("S-60 costs are there with the events of a run, before it has ended", func(t *testing.T) {
		r := newRig(t, open)
		r.costs(day)
		c := r.run("one")
		r.append(c, begun("1", "a/b", "m"), paid("1", "a/b", used(5)), begun("2", "a/b", "m"))
		r.costs(day, sumAt(0, "acme", "a/b", "m", used(5)))
		r.append(c, paid("2", "a/b", used(2)), begun("3", "a/b", "n"), paid("3", "a/b", used(1)))
		r.append(c, finished(agent.AddSpent(used(7), used(1))))
		two := used(7)
		two.ModelCalls = 2
		r.costs(day, sumAt(0, "acme", "a/b", "m", two), sumAt(0, "acme", "a/b", "n", used(1)))
	})
	t.Run("S-60 a run that is claimed again goes on where it was", func(t *testing.T) {
		r := newRig(t, open)
		old := r.run("one")
		r.append(old, begun("1", "a/b", "m"), paid("1", "a/b", used(5)), begun("2", "a/b", "m"))
		if _, err := r.Release(r.ctx(), old, time.Time{}); err != nil {
			t.Fatal(err)
		}
		if err := old.Journal.Append(r.ctx(), paid("2", "a/b", used(9))); err == nil {
			err = old.Journal.Commit(r.ctx())
			if !errors.Is(err, agent.ErrFenced) {
				t.Fatalf("an owner that lost its claim has recorded a cost: %v", err)
			}
		}
		c := r.claim("one")
		if _, err := c.Journal.Load(r.ctx()); err != nil {
			t.Fatal(err)
		}
		r.append(c, begun("2", "a/b", "m")) // the attempt before was interrupted
		lost := &teamv1.Spent{InputTokens: 900, OutputTokens: 100, CostMicros: 5000, ModelCalls: 1, Estimated: true}
		r.append(c, paid("2", "a/b", agent.AddSpent(lost, used(1))), finished(nil))
		got, err := r.Costs(r.ctx(), day)
		if err != nil || len(got) != 1 {
			t.Fatalf("%v, %v", got, err)
		}
		all := agent.AddSpent(agent.AddSpent(lost, used(1)), used(5))
		want := cost.AmountsOf(all)
		if got[0].Key != (cost.Key{Account: "acme", Path: "a/b", Team: "a", Model: "m"}) || cmp.Diff(want[:8], got[0].Amounts[:8]) != "" {
			t.Fatalf("%v, want %v", got, want)
		}
		if part := got[0].Estimated(); part.GetCostMicros() != 5000 {
			t.Fatalf("the estimated part is %v", part)
		}
	})
	t.Run("S-60 costs are selected by period, account and model, and by day", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		r.append(c, begun("1", "a/b", "m"), paid("1", "a/b", used(1)))
		r.clock.Move(90 * time.Minute)
		r.append(c, begun("2", "a/b", "n"), paid("2", "a/b", used(2)))
		r.clock.Move(24 * time.Hour)
		r.append(c, begun("3", "a/b", "m"), paid("3", "a/b", used(4)))
		m, n, acme, other := "m", "n", "acme", "other"
		two := used(5)
		two.ModelCalls = 2
		week := cost.Query{From: noon - 24, Until: noon + 144}
		r.costs(week, sumAt(0, "acme", "a/b", "m", two), sumAt(0, "acme", "a/b", "n", used(2)))
		r.costs(day, sumAt(0, "acme", "a/b", "m", used(1)), sumAt(0, "acme", "a/b", "n", used(2)))
		r.costs(cost.Query{From: noon, Until: noon + 1}, sumAt(0, "acme", "a/b", "m", used(1)))
		r.costs(cost.Query{From: noon + 1, Until: noon + 2}, sumAt(0, "acme", "a/b", "n", used(2)))
		r.costs(cost.Query{From: noon + 2, Until: noon + 3})
		r.costs(cost.Query{From: week.From, Until: week.Until, Model: &n}, sumAt(0, "acme", "a/b", "n", used(2)))
		r.costs(cost.Query{From: week.From, Until: week.Until, Model: &m, Account: &acme}, sumAt(0, "acme", "a/b", "m", two))
		r.costs(cost.Query{From: week.From, Until: week.Until, Account: &other})
		first, next := cost.DayOf(noon), cost.DayOf(noon)+24
		r.costs(cost.Query{From: week.From, Until: week.Until, ByDay: true},
			sumAt(first, "acme", "a/b", "m", used(1)), sumAt(first, "acme", "a/b", "n", used(2)), sumAt(next, "acme", "a/b", "m", used(4)))
	})
	costsOfAccounts(t, open)
	costsLongPast(t, open)
}

// costsLongPast tests what is kept of costs that are long past.
func costsLongPast(t *testing.T, open Open) {
	t.Run("S-60 costs are kept by the hour, then by the day, and then deleted", func(t *testing.T) {
		r := newRig(t, open)
		r.append(r.run("one"), begun("1", "a/b", "m"), paid("1", "a/b", used(1)), finished(used(1)))
		tidy := func(id string, after time.Duration) {
			t.Helper()
			r.clock.Move(after)
			r.append(r.run(id), begun("1", "a/c", "m"), paid("1", "a/c", used(1)), finished(used(1)))
			if err := r.Sweep(r.ctx()); err != nil {
				t.Fatal(err)
			}
		}
		first := cost.DayOf(noonHour)
		hour, midnight := cost.Query{From: noonHour, Until: noonHour + 1}, cost.Query{From: first, Until: first + 1}
		tidy("two", cost.Hourly-24*time.Hour)
		r.costs(hour, sumAt(0, "acme", "a/b", "m", used(1)))
		r.costs(midnight)
		tidy("three", 48*time.Hour)
		r.costs(hour)
		r.costs(midnight, sumAt(0, "acme", "a/b", "m", used(1)))
		byDay := noonDay
		byDay.ByDay = true
		r.costs(byDay, sumAt(first, "acme", "a/b", "m", used(1)))
		tidy("four", cost.Kept-cost.Hourly)
		r.costs(noonDay)
	})
}

// costsOfAccounts tests whose costs are whose.
func costsOfAccounts(t *testing.T, open Open) {
	day := noonDay
	t.Run("S-60 accounts are apart, and what the steps do not have is the root's", func(t *testing.T) {
		r := newRig(t, open)
		r.append(r.run("one"), begun("1", "a/b", "m"), paid("1", "a/b", used(1)), finished(used(3)))
		foreign := task("two")
		foreign.Owner, foreign.Accepted.Owner = "other/eve", "other/eve"
		r.create(foreign)
		r.append(r.claim("two"), finished(used(8)))
		left := used(2)
		left.ModelCalls = 0
		r.costs(day, sumAt(0, "acme", "a/b", "m", used(1)), sumAt(0, "acme", "a", "", left), sumAt(0, "other", "a", "", used(8)))
	})
	t.Run("S-60 a damaged or refused append adds nothing", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		if err := c.Journal.Append(r.ctx(), finished(used(1)), paid("1", "a/b", used(5))); !errors.Is(err, runs.ErrTerminal) {
			t.Fatalf("Append beyond the end: %v", err)
		}
		r.costs(day)
	})
}
