package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/agentteams/team-server/bench/measure"
	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

// BenchmarkDepth is goal 8: what a level costs of teams that are each other's
// only member, all in this process.
func BenchmarkDepth(b *testing.B) {
	t := &measure.Table{Title: "teams within teams, journal in memory", Goals: []string{
		"goal 8: rival=store: over funcs <= 2.5µs", "goal 8: rival=store: allocs over funcs <= 40", "max_depth is raised to 20",
	}}
	growth{unit: "level", sizes: []int{1, 2, 5, 10}, from: 0, rivals: nested}.compare(b, t)
}

// nested are the rivals of one depth.
func nested(b *testing.B, depth int) []measure.Rival {
	j := measure.Job{Agent: nest(b, depth), Input: "0", Answer: "1"}
	return []measure.Rival{always("funcs", funcs(depth)), always("loop", j.Loop()), always("store", j.Store(b))}
}

// nest is a team in a team and so on; the innermost one has the counting member.
func nest(b testing.TB, depth int) agent.Agent {
	b.Helper()
	agents, deepest := measure.Registry{}, int32(20)
	var a agent.Agent = counting()
	for range depth {
		id := fmt.Sprintf("t%d", len(agents))
		agents[id] = a
		t, err := team.New(team.Config{
			ID: fmt.Sprintf("t%d", len(agents)), Scheduler: relay{steps: 1}, Members: []team.Member{{ID: "member", Agent: id}},
			Registry: agents, Limits: &teamv1.Limits{MaxDepth: &deepest},
		})
		if err != nil {
			b.Fatal(err)
		}
		a = t
	}
	return a
}

// funcs is the yardstick: funcs that call each other as agents.
func funcs(depth int) measure.Call {
	a := counting()
	for range depth {
		inner := a
		a = &agent.Func{ID: "member", Call: func(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error) {
			return ask(ctx, inner, m, "")
		}}
	}
	return func(ctx context.Context, _ int64) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		m, err := ask(ctx, a, input(), "")
		if err != nil {
			return err
		}
		return check(m, 1)
	}
}
