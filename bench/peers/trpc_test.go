package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	trpcagent "trpc.group/trpc-go/trpc-agent-go/agent"
	"trpc.group/trpc-go/trpc-agent-go/agent/chainagent"
	"trpc.group/trpc-go/trpc-agent-go/agent/llmagent"
	"trpc.group/trpc-go/trpc-agent-go/agent/parallelagent"
	"trpc.group/trpc-go/trpc-agent-go/event"
	"trpc.group/trpc-go/trpc-agent-go/model"
	"trpc.group/trpc-go/trpc-agent-go/runner"
	"trpc.group/trpc-go/trpc-agent-go/session"
	"trpc.group/trpc-go/trpc-agent-go/session/inmemory"
	"trpc.group/trpc-go/trpc-agent-go/team"
	"trpc.group/trpc-go/trpc-agent-go/tool"

	"github.com/agentteams/team-server/bench/measure"
)

// trpc keeps the events of each run in a session in memory.
type trpc struct {
	answers string // the kind of events that answer
}

// trpcMember counts from the user's message: what a member before it has said is in
// the session some time later only.
type trpcMember struct{ name string }

func (trpcMember) Tools() []tool.Tool                  { return nil }
func (trpcMember) SubAgents() []trpcagent.Agent        { return nil }
func (trpcMember) FindSubAgent(string) trpcagent.Agent { return nil }
func (m trpcMember) Info() trpcagent.Info {
	return trpcagent.Info{Name: m.name, Description: describes}
}

func (m trpcMember) Run(_ context.Context, inv *trpcagent.Invocation) (<-chan *event.Event, error) {
	answer, err := count(inv.Message.Content)
	if err != nil {
		return nil, err
	}
	events := make(chan *event.Event, 1)
	ev := event.NewResponseEvent(inv.InvocationID, m.name, trpcAnswer(model.NewAssistantMessage(answer)))
	trpcagent.InjectIntoEvent(inv, ev)
	events <- ev
	close(events)
	return events, nil
}

func trpcAnswer(m model.Message) *model.Response {
	return &model.Response{Object: model.ObjectTypeChatCompletion, Done: true, Choices: []model.Choice{{Message: m}}}
}

func trpcMembers(n int) []trpcagent.Agent {
	var members []trpcagent.Agent
	for _, name := range names(n) {
		members = append(members, trpcMember{name})
	}
	return members
}

// run runs what make makes, which has to say these answers. Each run has a session
// of its own, each round a service of its own.
func (p trpc) run(make func() trpcagent.Agent, answers ...string) start {
	return func(b *testing.B) (measure.Call, func()) {
		s := inmemory.NewSessionService()
		r := runner.NewRunner("bench", make(), runner.WithSessionService(s))
		return func(ctx context.Context, _ int64) error { return p.talk(ctx, r, uuid.NewString(), answers...) }, p.closed(b, r, s)
	}
}

func (trpc) closed(b *testing.B, r runner.Runner, s session.Service) func() {
	return func() {
		if err := errors.Join(r.Close(), s.Close()); err != nil {
			b.Error(err)
		}
	}
}

// plain is a result without the quotes that tools put around it.
func plain(result string) string { return strings.Trim(result, `"`) }

func (p trpc) talk(ctx context.Context, r runner.Runner, id string, answers ...string) error {
	events, err := r.Run(ctx, "bench", id, model.NewUserMessage("0"))
	if err != nil {
		return err
	}
	var said []string
	for ev := range events {
		if ev.Error != nil {
			err = fmt.Errorf("%s: %s", ev.Error.Type, ev.Error.Message)
		}
		if ev.Object != p.answers || len(ev.Choices) == 0 || ev.Choices[0].Message.Content == "" {
			continue
		}
		said = append(said, plain(ev.Choices[0].Message.Content))
	}
	return want(said, err, answers...)
}

func (p trpc) sequence(_ *testing.B, n int) start {
	if n == 1 {
		return p.run(func() trpcagent.Agent { return trpcMember{"m0_"} }, "1")
	}
	return p.run(func() trpcagent.Agent { return chainagent.New("bench", chainagent.WithSubAgents(trpcMembers(n))) }, ones(n)...)
}

func (p trpc) parallel(_ *testing.B, n int) start {
	return p.run(func() trpcagent.Agent { return parallelagent.New("bench", parallelagent.WithSubAgents(trpcMembers(n))) }, ones(n)...)
}

func (p trpc) lead(b *testing.B, n int) start { return p.led(b, n, team.MemberToolConfig{}) }

// handOver ends with the result of the tool that stands for the member.
func (p trpc) handOver(b *testing.B, n int) start {
	p.answers = model.ObjectTypeToolResponse
	return p.led(b, n, team.MemberToolConfig{SkipSummarization: true})
}

// led is a coordinator with its members as tools.
func (p trpc) led(b *testing.B, n int, c team.MemberToolConfig) start {
	return p.run(func() trpcagent.Agent {
		lead := llmagent.New("bench", llmagent.WithModel(trpcModel{offered: n}))
		t, err := team.New(lead, trpcMembers(n), team.WithMemberToolConfig(c))
		if err != nil {
			b.Fatal(err)
		}
		return t
	}, "1")
}

func (p trpc) swarm(b *testing.B) start {
	return p.run(func() trpcagent.Agent {
		members := []trpcagent.Agent{
			llmagent.New("a", llmagent.WithDescription(describes), llmagent.WithModel(trpcModel{to: "b"})),
			llmagent.New("b", llmagent.WithDescription(describes), llmagent.WithModel(trpcModel{})),
		}
		t, err := team.NewSwarm("bench", "a", members)
		if err != nil {
			b.Fatal(err)
		}
		return t
	}, "1")
}

func (p trpc) depth(_ *testing.B, n int) start {
	return p.run(func() trpcagent.Agent {
		var a trpcagent.Agent = trpcMember{"m_"}
		for i := range n {
			a = chainagent.New(fmt.Sprintf("t%d", i), chainagent.WithSubAgents([]trpcagent.Agent{a}))
		}
		return a
	}, "1")
}

// history has a session for each of the runs of a round, and one to warm up.
func (p trpc) history(_ *testing.B, n int) start {
	return func(b *testing.B) (measure.Call, func()) {
		s := inmemory.NewSessionService()
		var ids []string
		for range talksOf(b) + 1 {
			ids = append(ids, p.conversation(b, s, n))
		}
		lead := llmagent.New("bench", llmagent.WithModel(trpcModel{messages: n + 1}))
		r := runner.NewRunner("bench", lead, runner.WithSessionService(s))
		return func(ctx context.Context, _ int64) error {
			id := ids[0]
			ids = ids[1:]
			return p.talk(ctx, r, id, "1")
		}, p.closed(b, r, s)
	}
}

// conversation is a session in which n messages were said.
func (trpc) conversation(b *testing.B, s session.Service, n int) string {
	b.Helper()
	key := session.Key{AppName: "bench", UserID: "bench", SessionID: uuid.NewString()}
	made, err := s.CreateSession(b.Context(), key, nil)
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		author, m := "user", model.NewUserMessage(line(i))
		if i%2 == 1 {
			author, m = "bench", model.NewAssistantMessage(line(i))
		}
		if err := s.AppendEvent(b.Context(), made, event.NewResponseEvent(uuid.NewString(), author, trpcAnswer(m))); err != nil {
			b.Fatal(err)
		}
	}
	return key.SessionID
}

// trpcModel calls a member in the middle of those offered, or hands over to another
// agent, or counts.
type trpcModel struct {
	offered  int
	to       string
	messages int // that it has to be shown; 0 is any number
}

func (trpcModel) Info() model.Info { return model.Info{Name: "scripted"} }

func (m trpcModel) GenerateContent(_ context.Context, req *model.Request) (<-chan *model.Response, error) {
	answer, err := m.message(req)
	if err != nil {
		return nil, err
	}
	responses := make(chan *model.Response, 1)
	responses <- trpcAnswer(answer)
	close(responses)
	return responses, nil
}

func (m trpcModel) message(req *model.Request) (model.Message, error) {
	last := req.Messages[len(req.Messages)-1]
	calls := func(name, arguments string) (model.Message, error) {
		return model.Message{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{
			Type: "function", ID: "1", Function: model.FunctionDefinitionParam{Name: name, Arguments: []byte(arguments)},
		}}}, nil
	}
	switch {
	case len(req.Tools) < m.offered || m.messages > 0 && len(req.Messages) != m.messages:
		return model.Message{}, errOffered
	case last.Role == model.RoleTool:
		return model.NewAssistantMessage(plain(last.Content)), nil
	case m.offered > 0:
		offered := slices.Sorted(maps.Keys(req.Tools))
		i := slices.IndexFunc(offered, func(name string) bool { return strings.HasSuffix(name, names(m.offered)[m.offered/2]) })
		return calls(offered[i], `{"request":"`+last.Content+`"}`)
	case m.to != "":
		return calls("transfer_to_agent", `{"agent_name":"`+m.to+`","message":"0"}`)
	}
	text, err := count(last.Content)
	return model.NewAssistantMessage(text), err
}
