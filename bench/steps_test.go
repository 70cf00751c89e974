package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/agentteams/team-server/bench/measure"
	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

// counting is the member: it answers with the next number.
func counting() *agent.Func {
	return &agent.Func{ID: "member", Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		n, err := strconv.Atoi(agent.Text(m))
		return agent.NewMessage(strconv.Itoa(n + 1)), err
	}}
}

// input is what a run begins with.
func input() *a2av1.Message { return agent.UserMessage("input", "0") }

// check finds out whether a run of n steps has come to its end.
func check(m *a2av1.Message, n int) error {
	if got := agent.Text(m); got != strconv.Itoa(n) {
		return fmt.Errorf("a run of %d steps ended with %q", n, got)
	}
	return nil
}

// memberRun is the yardstick: the member called n times, by nobody who keeps
// anything.
func memberRun(n int) measure.Call {
	member := counting()
	return func(ctx context.Context, _ int64) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		m := input()
		for range n {
			var err error
			if m, err = ask(ctx, member, m, ""); err != nil {
				return err
			}
		}
		return check(m, n)
	}
}

// ask gives the member a message and returns its answer.
func ask(ctx context.Context, member agent.Agent, m *a2av1.Message, scope string) (*a2av1.Message, error) {
	for ev, err := range member.Process(ctx, &teamv1.ProcessRequest{AgentId: "member", Message: m, Scope: scope}) {
		return ev.GetReply().GetMessage(), err
	}
	return nil, errors.New("no answer")
}

// bareRun is a plain loop over the member that keeps the events of a run, three
// for each step, and does nothing else.
func bareRun(n int) measure.Call {
	member := counting()
	return func(ctx context.Context, _ int64) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var journal []*teamv1.Event
		m := input()
		for i := range n {
			step := &teamv1.Step{Id: strconv.Itoa(i + 1), Kind: teamv1.Step_KIND_DELEGATE, Member: "member"}
			journal = append(journal,
				&teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Reason: "next", Steps: []*teamv1.Step{step}}}},
				&teamv1.Event{Scope: step.GetId(), Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}})
			var err error
			if m, err = ask(ctx, member, m, step.GetId()); err != nil {
				return err
			}
			ended := &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Reply{Reply: m}}
			journal = append(journal, &teamv1.Event{Scope: step.GetId(), Kind: &teamv1.Event_Ended{Ended: ended}})
		}
		return check(journal[len(journal)-1].GetEnded().GetReply(), n)
	}
}

// loopRun is a team used as a library, with a slice for a journal.
func loopRun(_ testing.TB, t *team.Team, n int) measure.Call { return counted(t, n).Loop() }

// storeRun drives a team as the server does, with the journal of the store in memory.
func storeRun(b testing.TB, t *team.Team, n int) measure.Call { return counted(t, n).Store(b) }

// counted is a run of n steps of the counting member.
func counted(t *team.Team, n int) measure.Job {
	return measure.Job{Agent: t, Input: "0", Answer: strconv.Itoa(n)}
}

// most is a limit that no run here comes to.
func most() *teamv1.Limits {
	n := int32(10_000)
	return &teamv1.Limits{MaxSteps: &n, MaxTurns: &n}
}

// kinds of runs, the yardstick first.
func kinds(b *testing.B, n int) []measure.Rival {
	t := teamOf(b, relay{steps: n}, counting(), most())
	return []measure.Rival{always("member", memberRun(n)), always("bare", bareRun(n)), always("loop", loopRun(b, t, n)), always("store", storeRun(b, t, n))}
}

// BenchmarkSteps is goal 5: what a step costs, from runs of 1 to 100 steps.
func BenchmarkSteps(b *testing.B) {
	t := &measure.Table{Title: "runs of sequential steps, journal in memory", Goals: []string{
		"goal 5: rival=store: over member <= 2µs", "goal 5: rival=store: allocs over member <= 24", "max_steps is raised to 10,000",
	}}
	growth{unit: "step", sizes: []int{1, 3, 10, 100}, from: 2, rivals: kinds}.compare(b, t)
}

// BenchmarkPlace is the other half of goal 5: a late step costs what an early
// one does.
func BenchmarkPlace(b *testing.B) {
	t := &measure.Table{Title: "a step by its place in the run", Head: "rival\tallocs at 20\tallocs at 500\txallocs\ttime at 20\ttime at 500\txtime", Goals: []string{
		"goal 5: rival=store: xtime <= 1.2",
	}}
	runs := map[string]func(testing.TB, *team.Team, int) measure.Call{"loop": loopRun, "store": storeRun}
	for _, name := range []string{"loop", "store"} {
		var early, late []measure.Figures
		for range measure.Rounds {
			early, late = append(early, around(b, runs[name], 20, 15)), append(late, around(b, runs[name], 500, 15))
		}
		t.Add("%s\t%.1f\t%.1f\t%.2f\t%s\t%s\t%.2f", name, measure.Median(early, measure.Allocs), measure.Median(late, measure.Allocs), measure.Ratio(late, early, measure.Allocs),
			measure.Short(measure.Median(early, measure.Each)), measure.Short(measure.Median(late, measure.Each)), measure.Ratio(late, early, measure.Each))
		b.ReportMetric(measure.Ratio(late, early, measure.Each), name+"-x500")
		b.ReportMetric(measure.Ratio(late, early, measure.Allocs), name+"-x500-allocs")
	}
	b.ReportMetric(0, "ns/op")
	t.Print()
}

// around measures the steps around one place, so many before and after it: the
// median of several runs.
func around(b *testing.B, run func(testing.TB, *team.Team, int) measure.Call, place, window int) measure.Figures {
	b.Helper()
	const runs = 21
	var times, counts []float64
	for range runs {
		stamps := &stamps{relay: relay{steps: place + 2*window}, from: place - window, to: place + window}
		if err := run(b, teamOf(b, stamps, counting(), most()), stamps.steps)(b.Context(), 0); err != nil {
			b.Fatal(err)
		}
		times = append(times, float64(stamps.end.Sub(stamps.begin))/float64(2*window))
		counts = append(counts, float64(stamps.after.Mallocs-stamps.before.Mallocs)/float64(2*window))
	}
	slices.Sort(times)
	slices.Sort(counts)
	return measure.Figures{Rate: float64(time.Second) / times[runs/2], Allocs: counts[runs/2]}
}

// stamps is a relay that notes when it was asked for two of the steps.
type stamps struct {
	relay
	from, to      int
	begin, end    time.Time
	before, after runtime.MemStats
}

func (s *stamps) Next(state *team.State) (team.Decision, error) {
	switch len(state.Steps) {
	case s.from:
		runtime.ReadMemStats(&s.before)
		s.begin = time.Now()
	case s.to:
		s.end = time.Now()
		runtime.ReadMemStats(&s.after)
	}
	return s.relay.Next(state)
}
