package bench

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/agentteams/team-server/bench/measure"
	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/swarm"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// ours is this framework: as a library, or driven with the journal of the store in
// memory, as the server does.
type ours struct{ driven bool }

func (o ours) run(j measure.Job) start {
	if o.driven {
		return func(b *testing.B) (measure.Call, func()) { return j.Store(b), func() {} }
	}
	return shared(j.Loop())
}

// member counts.
func member() agent.Agent {
	return &agent.Func{ID: "member", Description: describes, Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		answer, err := count(agent.Text(m))
		return agent.NewMessage(answer), err
	}}
}

// team of members by name; all of them are the same agent.
func (ours) team(b *testing.B, c team.Config, members []string, a agent.Agent) *team.Team {
	b.Helper()
	if c.ID == "" {
		c.ID = "bench"
	}
	agents := measure.Registry{}
	for _, id := range members {
		c.Members = append(c.Members, team.Member{Agent: id})
		agents[id] = a
	}
	c.Registry = agents
	t, err := team.New(c)
	if err != nil {
		b.Fatal(err)
	}
	return t
}

func (ours) flow(b *testing.B, steps ...workflow.Step) *workflow.Workflow {
	b.Helper()
	w, err := workflow.New(workflow.Config{Steps: steps})
	if err != nil {
		b.Fatal(err)
	}
	return w
}

func (o ours) sequence(b *testing.B, n int) start {
	var steps []workflow.Step
	for i, id := range names(n) {
		s := workflow.Step{ID: id, Member: id}
		if i > 0 {
			s.After = []string{steps[i-1].ID}
		}
		steps = append(steps, s)
	}
	t := o.team(b, team.Config{Scheduler: o.flow(b, steps...)}, names(n), member())
	return o.run(measure.Job{Agent: t, Input: "0", Answer: fmt.Sprint(n)})
}

func (o ours) parallel(b *testing.B, n int) start {
	group, answers := workflow.Step{}, []string{}
	for _, id := range names(n) {
		group.Parallel = append(group.Parallel, workflow.Step{ID: id, Member: id})
		answers = append(answers, "## "+id+"\n\n1")
	}
	width := int32(n)
	t := o.team(b, team.Config{Scheduler: o.flow(b, group), Limits: &teamv1.Limits{MaxParallel: &width}}, names(n), member())
	return o.run(measure.Job{Agent: t, Input: "0", Answer: strings.Join(answers, "\n\n")})
}

func (o ours) lead(b *testing.B, n int) start { return o.led(b, n, false) }

func (o ours) handOver(b *testing.B, n int) start { return o.led(b, n, true) }

func (o ours) led(b *testing.B, n int, last bool) start {
	c := leader.CoordinatorConfig{}
	for _, id := range names(n) {
		c.Members = append(c.Members, team.Member{Agent: id, SkipSummarization: last})
	}
	lead, err := leader.NewCoordinator(c)
	if err != nil {
		b.Fatal(err)
	}
	t := o.team(b, team.Config{Scheduler: lead, Model: ourModel{offered: n}, ReportErrors: true}, names(n), member())
	return o.run(measure.Job{Agent: t, Input: "0", Answer: "1"})
}

func (o ours) swarm(b *testing.B) start {
	members := []team.Member{{Agent: "a"}, {Agent: "b"}}
	s, err := swarm.New(swarm.Config{Entry: "a", Members: members})
	if err != nil {
		b.Fatal(err)
	}
	agents := measure.Registry{}
	for id, to := range map[string]string{"a": "b", "b": ""} {
		a, err := leader.NewAgent(leader.AgentConfig{ID: id, Description: describes, Model: ourModel{to: to}})
		if err != nil {
			b.Fatal(err)
		}
		agents[id] = a
	}
	t, err := team.New(team.Config{ID: "bench", Scheduler: s, Members: members, Registry: agents})
	if err != nil {
		b.Fatal(err)
	}
	return o.run(measure.Job{Agent: t, Input: "0", Answer: "1"})
}

func (o ours) depth(b *testing.B, n int) start {
	a, deepest := member(), int32(20)
	for i := range n {
		flow := o.flow(b, workflow.Step{ID: "s", Member: "member"})
		a = o.team(b, team.Config{ID: fmt.Sprintf("t%d", i), Scheduler: flow, Limits: &teamv1.Limits{MaxDepth: &deepest}}, []string{"member"}, a)
	}
	return o.run(measure.Job{Agent: a, Input: "0", Answer: "1"})
}

func (o ours) history(b *testing.B, n int) start {
	a, err := leader.NewAgent(leader.AgentConfig{ID: "bench", Model: ourModel{messages: n + 1}})
	if err != nil {
		b.Fatal(err)
	}
	said := make([]*a2av1.Message, n)
	for i := range said {
		said[i] = agent.UserMessage(fmt.Sprint(i), line(i))
		if i%2 == 1 {
			said[i].Role = a2av1.Role_ROLE_AGENT
		}
	}
	return o.run(measure.Job{Agent: told{a, said}, Input: "0", Answer: "1"})
}

// told hands a conversation over with each call.
type told struct {
	agent.Agent
	history []*a2av1.Message
}

func (t told) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	req.History = t.history
	return t.Agent.Process(ctx, req)
}

// ourModel calls a member in the middle of those offered, or hands over to another
// agent, or counts.
type ourModel struct {
	offered  int
	to       string
	messages int // that it has to be shown; 0 is any number
}

func (ourModel) Name() string { return "scripted" }

func (m ourModel) Generate(_ context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		turn, err := m.turn(req)
		yield(agent.ModelChunk{Turn: turn}, err)
	}
}

func (m ourModel) turn(req *agent.ModelRequest) (*teamv1.Turn, error) {
	last := req.Messages[len(req.Messages)-1]
	calls := func(name, arguments string) (*teamv1.Turn, error) {
		return &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "1", Name: name, Arguments: arguments}}}, nil
	}
	switch {
	case len(req.Tools) < m.offered || m.messages > 0 && len(req.Messages) != m.messages:
		return nil, errOffered
	case last.Role == agent.RoleTool:
		return &teamv1.Turn{Text: last.Text[strings.LastIndex(last.Text, "\n")+1:]}, nil
	case m.offered > 0:
		return calls(req.Tools[m.offered/2].Name, `{"task":"`+last.Text+`"}`)
	case m.to != "":
		return calls("transfer_to_agent", `{"agent_name":"`+m.to+`","message":"0"}`)
	}
	text, err := count(last.Text)
	return &teamv1.Turn{Text: text}, err
}
