package bench

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/agentteams/team-server/bench/measure"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// BenchmarkCoordinator is goal 6: a leader that is offered 10 to 1,000 members
// has one of them work, and answers with what it says.
func BenchmarkCoordinator(b *testing.B) {
	sizes := []int{10, 100, 1000}
	var rivals []measure.Rival
	for _, n := range sizes {
		led := ledBy(b, n)
		rivals = append(rivals, always("calls", turns(b, n)), always("loop", led.Loop()), always("store", led.Store(b)))
	}
	all := measure.Race(b, share(measure.BudgetOf(b), len(sizes)), 1, rivals)
	b.ReportMetric(0, "ns/op")
	t := &measure.Table{
		Title: "a leader picks one of its members, journal in memory",
		Head:  "members\trival\ttime\tallocs\tB\tover calls\tcpu over calls\tallocs over calls\tx10 members\txcpu",
		Goals: []string{
			"goal 6: members=10, rival=store: over calls <= 15µs", "goal 6: members=10, rival=store: allocs over calls <= 80",
			"goal 6: members=1000, rival=store: x10 members <= 1.2",
		},
	}
	for i, r := range rivals {
		yardstick, few := all[i/3*3], all[i%3]
		t.Add("%d\t%s\t%s\t%.0f\t%.0f\t%s\t%s\t%.0f\t%.2f\t%.2f", sizes[i/3], r.Name,
			measure.Short(measure.Median(all[i], measure.Each)), measure.Median(all[i], measure.Allocs), measure.Median(all[i], measure.Bytes),
			measure.Short(measure.Median(all[i], measure.Each)-measure.Median(yardstick, measure.Each)),
			measure.Short(measure.Median(all[i], measure.CPU)-measure.Median(yardstick, measure.CPU)),
			measure.Median(all[i], measure.Allocs)-measure.Median(yardstick, measure.Allocs),
			measure.Ratio(all[i], few, measure.Each), measure.Ratio(all[i], few, measure.CPU))
	}
	b.ReportMetric(measure.Ratio(all[len(all)-1], all[2], measure.Each), "store-x1000")
	t.Print()
}

// ledBy is a run of a leader with so many members.
func ledBy(b testing.TB, members int) measure.Job {
	b.Helper()
	c := leader.CoordinatorConfig{Limits: most()}
	for _, id := range memberIDs(members) {
		c.Members = append(c.Members, team.Member{Agent: id, Description: "counts one up from the number it is given"})
	}
	lead, err := leader.NewCoordinator(c)
	if err != nil {
		b.Fatal(err)
	}
	t := staffed(b, team.Config{Scheduler: lead, Model: chooser{members}, Limits: most(), ReportErrors: true}, memberIDs(members))
	return measure.Job{Agent: t, Input: "0", Answer: "1"}
}

// chooser is the model: it calls a member in the middle of those it is offered,
// and answers with the result.
type chooser struct{ members int }

func (chooser) Name() string { return "chooser" }

func (c chooser) Generate(_ context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		last := req.Messages[len(req.Messages)-1]
		turn := &teamv1.Turn{}
		switch {
		case len(req.Tools) < c.members:
			yield(agent.ModelChunk{}, fmt.Errorf("%d members are offered, want %d", len(req.Tools), c.members))
			return
		case last.Role == agent.RoleTool:
			turn.Text = last.Text[strings.LastIndex(last.Text, "\n")+1:]
		default:
			turn.ToolCalls = []*teamv1.ToolCall{{Id: "1", Name: req.Tools[c.members/2].Name, Arguments: `{"task":"` + last.Text + `"}`}}
		}
		yield(agent.ModelChunk{Turn: turn}, nil)
	}
}

// turns is the yardstick: the model is asked, then the member, then the model
// again, by nobody who describes or keeps anything.
func turns(b *testing.B, members int) measure.Call {
	b.Helper()
	tools := make([]agent.ToolSpec, members)
	for i, id := range memberIDs(members) {
		tools[i].Name = id
	}
	model, member := chooser{members}, counting()
	return func(ctx context.Context, _ int64) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		req := &agent.ModelRequest{Tools: tools, Messages: []agent.ModelMessage{{Role: agent.RoleUser, Text: "0"}}}
		for chunk, err := range model.Generate(ctx, req) {
			if err != nil {
				return err
			}
			req.Messages = append(req.Messages, agent.ModelMessage{Role: agent.RoleAssistant, ToolCalls: chunk.Turn.GetToolCalls()})
		}
		m, err := ask(ctx, member, input(), "1")
		if err != nil {
			return err
		}
		req.Messages = append(req.Messages, agent.ModelMessage{Role: agent.RoleTool, Text: agent.Text(m)})
		for chunk, err := range model.Generate(ctx, req) {
			if err != nil || chunk.Turn.GetText() != "1" {
				return fmt.Errorf("the model answered %q: %w", chunk.Turn.GetText(), err)
			}
		}
		return nil
	}
}
