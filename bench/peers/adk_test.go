package bench

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/google/uuid"
	adkagent "google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/agent/workflowagents/parallelagent"
	"google.golang.org/adk/v2/agent/workflowagents/sequentialagent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/agenttool"
	"google.golang.org/genai"

	"github.com/agentteams/team-server/bench/measure"
)

// adk keeps the events of each run in a session in memory.
type adk struct{}

// newMember counts from the user's message, or from what was said last in the session.
func (adk) newMember(b *testing.B, name string, fromLast bool) adkagent.Agent {
	b.Helper()
	a, err := adkagent.New(adkagent.Config{Name: name, Description: describes, Run: func(ctx adkagent.InvocationContext) iter.Seq2[*session.Event, error] {
		return func(yield func(*session.Event, error) bool) {
			given := ctx.UserContent()
			if events := ctx.Session().Events(); fromLast && events.Len() > 0 {
				given = events.At(events.Len() - 1).Content
			}
			answer, err := count(given.Parts[0].Text)
			if err != nil {
				yield(nil, err)
				return
			}
			ev := session.NewEvent(ctx, ctx.InvocationID())
			ev.LLMResponse = model.LLMResponse{Content: genai.NewContentFromText(answer, genai.RoleModel)}
			yield(ev, nil)
		}
	}})
	if err != nil {
		b.Fatal(err)
	}
	return a
}

func (a adk) members(b *testing.B, n int, fromLast bool) []adkagent.Agent {
	var members []adkagent.Agent
	for _, name := range names(n) {
		members = append(members, a.newMember(b, name, fromLast))
	}
	return members
}

// run runs what make makes, which has to say these answers. Each run has a session
// of its own, each round a service of its own. Agents know their parents: they are
// made anew with it.
func (a adk) run(make func() adkagent.Agent, answers ...string) start {
	return func(b *testing.B) (measure.Call, func()) {
		r := a.runner(b, make(), session.InMemoryService())
		return func(ctx context.Context, _ int64) error { return a.talk(ctx, r, uuid.NewString(), answers...) }, func() {}
	}
}

func (adk) runner(b *testing.B, a adkagent.Agent, s session.Service) *runner.Runner {
	b.Helper()
	r, err := runner.New(runner.Config{AppName: "bench", Agent: a, SessionService: s, AutoCreateSession: true})
	if err != nil {
		b.Fatal(err)
	}
	return r
}

func (adk) talk(ctx context.Context, r *runner.Runner, id string, answers ...string) error {
	var said []string
	for ev, err := range r.Run(ctx, "bench", id, genai.NewContentFromText("0", genai.RoleUser), adkagent.RunConfig{}) {
		if err != nil {
			return err
		}
		if c := ev.Content; c != nil {
			for _, p := range c.Parts {
				if p.Text != "" {
					said = append(said, p.Text)
				}
			}
		}
	}
	return want(said, nil, answers...)
}

func (a adk) sequence(b *testing.B, n int) start {
	if n == 1 {
		return a.run(func() adkagent.Agent { return a.newMember(b, "m0_", false) }, "1")
	}
	return a.run(func() adkagent.Agent { return a.inTurn(b, "bench", a.members(b, n, true)) }, upTo(n)...)
}

func (adk) inTurn(b *testing.B, name string, members []adkagent.Agent) adkagent.Agent {
	b.Helper()
	s, err := sequentialagent.New(sequentialagent.Config{AgentConfig: adkagent.Config{Name: name, SubAgents: members}})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func (a adk) parallel(b *testing.B, n int) start {
	return a.run(func() adkagent.Agent {
		p, err := parallelagent.New(parallelagent.Config{AgentConfig: adkagent.Config{Name: "bench", SubAgents: a.members(b, n, false)}})
		if err != nil {
			b.Fatal(err)
		}
		return p
	}, ones(n)...)
}

// lead is an agent with its members as tools.
func (a adk) lead(b *testing.B, n int) start {
	return a.run(func() adkagent.Agent {
		var tools []tool.Tool
		for _, m := range a.members(b, n, false) {
			tools = append(tools, agenttool.New(m, nil))
		}
		return a.backed(b, llmagent.Config{Model: adkModel{offered: n}, Tools: tools})
	}, "1")
}

// handOver is an agent that transfers to one of its sub-agents.
func (a adk) handOver(b *testing.B, n int) start {
	return a.run(func() adkagent.Agent {
		return a.backed(b, llmagent.Config{Model: adkModel{to: names(n)[n/2]}, SubAgents: a.members(b, n, false)})
	}, "1")
}

func (adk) backed(b *testing.B, c llmagent.Config) adkagent.Agent {
	b.Helper()
	c.Name = "bench"
	a, err := llmagent.New(c)
	if err != nil {
		b.Fatal(err)
	}
	return a
}

func (adk) swarm(*testing.B) start { return nil }

func (a adk) depth(b *testing.B, n int) start {
	return a.run(func() adkagent.Agent {
		inner := a.newMember(b, "m_", false)
		for i := range n {
			inner = a.inTurn(b, fmt.Sprintf("t%d", i), []adkagent.Agent{inner})
		}
		return inner
	}, "1")
}

// history has a session for each of the runs of a round, and one to warm up.
func (a adk) history(_ *testing.B, n int) start {
	return func(b *testing.B) (measure.Call, func()) {
		s := session.InMemoryService()
		var ids []string
		for range talksOf(b) + 1 {
			ids = append(ids, a.conversation(b, s, n))
		}
		r := a.runner(b, a.backed(b, llmagent.Config{Model: adkModel{messages: n + 1}}), s)
		return func(ctx context.Context, _ int64) error {
			id := ids[0]
			ids = ids[1:]
			return a.talk(ctx, r, id, "1")
		}, func() {}
	}
}

// conversation is a session in which n messages were said.
func (adk) conversation(b *testing.B, s session.Service, n int) string {
	b.Helper()
	made, err := s.Create(b.Context(), &session.CreateRequest{AppName: "bench", UserID: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		ev := session.NewEvent(b.Context(), uuid.NewString())
		ev.Author, ev.Content = "user", genai.NewContentFromText(line(i), genai.RoleUser)
		if i%2 == 1 {
			ev.Author, ev.Content = "bench", genai.NewContentFromText(line(i), genai.RoleModel)
		}
		if err := s.AppendEvent(b.Context(), made.Session, ev); err != nil {
			b.Fatal(err)
		}
	}
	return made.Session.ID()
}

// adkModel calls a member in the middle of those offered, or transfers to one, or
// counts.
type adkModel struct {
	offered  int
	to       string
	messages int // that it has to be shown; 0 is any number
}

func (adkModel) Name() string { return "scripted" }

func (m adkModel) GenerateContent(_ context.Context, req *model.LLMRequest, _ bool) iter.Seq2[*model.LLMResponse, error] {
	return func(yield func(*model.LLMResponse, error) bool) {
		c, err := m.content(req)
		yield(&model.LLMResponse{Content: c}, err)
	}
}

func (m adkModel) content(req *model.LLMRequest) (*genai.Content, error) {
	last := req.Contents[len(req.Contents)-1].Parts[0]
	switch {
	case len(req.Tools) < m.offered || m.messages > 0 && len(req.Contents) != m.messages:
		return nil, errOffered
	case last.FunctionResponse != nil:
		return genai.NewContentFromText(fmt.Sprint(last.FunctionResponse.Response["result"]), genai.RoleModel), nil
	case m.offered > 0:
		return genai.NewContentFromFunctionCall(names(m.offered)[m.offered/2], map[string]any{"request": last.Text}, genai.RoleModel), nil
	case m.to != "":
		return genai.NewContentFromFunctionCall("transfer_to_agent", map[string]any{"agent_name": m.to}, genai.RoleModel), nil
	}
	text, err := count(last.Text)
	return genai.NewContentFromText(text, genai.RoleModel), err
}
