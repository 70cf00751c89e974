package bench

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/agentteams/team-server/bench/measure"
	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// BenchmarkParallel is goal 7: what a member costs that works beside others, in
// teams of 1 to 100 whose answers are joined.
func BenchmarkParallel(b *testing.B) {
	t := &measure.Table{Title: "members that work at the same time, journal in memory", Goals: []string{
		"goal 7: rival=store: over goroutines <= 4µs", "goal 7: rival=store: allocs over goroutines <= 32", "max_parallel is raised to the width",
	}}
	growth{unit: "child", sizes: []int{1, 10, 100}, from: 1, rivals: fanOuts}.compare(b, t)
}

// fanOuts are the rivals of one width.
func fanOuts(b *testing.B, width int) []measure.Rival {
	ids := memberIDs(width)
	t := staffed(b, team.Config{Scheduler: fan{ids: ids}, Limits: wide(width)}, ids)
	group := workflow.Step{}
	for _, id := range ids {
		group.Parallel = append(group.Parallel, workflow.Step{ID: id, Member: id})
	}
	w, err := workflow.New(workflow.Config{Steps: []workflow.Step{group}})
	if err != nil {
		b.Fatal(err)
	}
	flow := staffed(b, team.Config{Scheduler: w, Limits: wide(width)}, ids)
	of := func(t *team.Team) measure.Job { return measure.Job{Agent: t, Input: "0", Answer: joined(ids)} }
	return []measure.Rival{
		always("goroutines", goroutines(ids)), always("loop", of(t).Loop()),
		always("store", of(t).Store(b)), always("workflow", of(flow).Store(b)),
	}
}

// goroutines is the yardstick: each member is called in a goroutine, and the
// answers are joined.
func goroutines(ids []string) measure.Call {
	member := counting()
	return func(ctx context.Context, _ int64) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		answers, errs := make([]string, len(ids)), make([]error, len(ids))
		var wg sync.WaitGroup
		for i, id := range ids {
			wg.Go(func() {
				var m *a2av1.Message
				m, errs[i] = ask(ctx, member, input(), id)
				answers[i] = agent.Text(m)
			})
		}
		wg.Wait()
		for i, id := range ids {
			if errs[i] != nil || answers[i] != "1" {
				return fmt.Errorf("%s answered %q: %w", id, answers[i], errs[i])
			}
		}
		return nil
	}
}

// fan has all members called at the same time, and replies with what they say.
type fan struct {
	team.Base
	ids []string
}

func (f fan) Next(s *team.State) (team.Decision, error) {
	if len(s.Steps) > 0 {
		return team.Decision{Reason: "done", Reply: s.Last.Message}, nil
	}
	d := team.Decision{Reason: "all", Steps: make([]*teamv1.Step, len(f.ids))}
	for i, id := range f.ids {
		d.Steps[i] = &teamv1.Step{Kind: teamv1.Step_KIND_DELEGATE, Member: id}
	}
	return d, nil
}

// joined is the answer of members who were given a 0.
func joined(ids []string) string {
	if len(ids) == 1 {
		return "1"
	}
	sections := make([]string, len(ids))
	for i, id := range ids {
		sections[i] = "## " + id + "\n\n1"
	}
	return strings.Join(sections, "\n\n")
}

func memberIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("m%d", i)
	}
	return ids
}

// staffed is a team whose members are all the counting one.
func staffed(b testing.TB, c team.Config, ids []string) *team.Team {
	b.Helper()
	c.ID, c.Registry = "bench", alone{counting()}
	for _, id := range ids {
		c.Members = append(c.Members, team.Member{Agent: id, Description: "counts one up from the number it is given"})
	}
	t, err := team.New(c)
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// wide are limits that a run of n members at the same time keeps to.
func wide(n int) *teamv1.Limits {
	l := most()
	width := int32(n)
	l.MaxParallel = &width
	return l
}
