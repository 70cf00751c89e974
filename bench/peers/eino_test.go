package bench

import (
	"context"
	"fmt"
	"testing"

	einoadk "github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	einoagent "github.com/cloudwego/eino/flow/agent"
	"github.com/cloudwego/eino/flow/agent/multiagent/host"
	"github.com/cloudwego/eino/schema"
)

// eino keeps nothing of a run.
type eino struct{}

// einoMember counts. It answers before its Run returns, in no goroutine of its own.
type einoMember struct{ name string }

func (m einoMember) Name(context.Context) string      { return m.name }
func (einoMember) Description(context.Context) string { return describes }

func (m einoMember) Run(_ context.Context, in *einoadk.AgentInput, _ ...einoadk.AgentRunOption) *einoadk.AsyncIterator[*einoadk.AgentEvent] {
	events, to := einoadk.NewAsyncIteratorPair[*einoadk.AgentEvent]()
	defer to.Close()
	answer, err := count(in.Messages[len(in.Messages)-1].Content)
	if err != nil {
		to.Send(&einoadk.AgentEvent{Err: err})
		return events
	}
	to.Send(einoadk.EventFromMessage(schema.AssistantMessage(answer, nil), nil, schema.Assistant, ""))
	return events
}

func einoMembers(n int) []einoadk.Agent {
	var members []einoadk.Agent
	for _, name := range names(n) {
		members = append(members, einoMember{name})
	}
	return members
}

// run runs an agent, which has to say these answers, tools left out.
func (eino) run(b *testing.B, a einoadk.Agent, before []*schema.Message, answers ...string) start {
	r := einoadk.NewRunner(b.Context(), einoadk.RunnerConfig{Agent: a})
	return shared(func(ctx context.Context, _ int64) error {
		messages := append(before[:len(before):len(before)], schema.UserMessage("0"))
		var said []string
		events := r.Run(ctx, messages)
		for {
			ev, more := events.Next()
			switch {
			case !more:
				return want(said, nil, answers...)
			case ev.Err != nil:
				return ev.Err
			case ev.Output == nil || ev.Output.MessageOutput.Role != schema.Assistant:
				continue
			}
			m, err := ev.Output.MessageOutput.GetMessage()
			if err != nil {
				return err
			}
			if m.Content != "" {
				said = append(said, m.Content)
			}
		}
	})
}

func (e eino) sequence(b *testing.B, n int) start {
	if n == 1 {
		return e.run(b, einoMember{"m0_"}, nil, "1")
	}
	a, err := einoadk.NewSequentialAgent(b.Context(), &einoadk.SequentialAgentConfig{Name: "bench", Description: "bench", SubAgents: einoMembers(n)})
	if err != nil {
		b.Fatal(err)
	}
	return e.run(b, a, nil, upTo(n)...)
}

func (e eino) parallel(b *testing.B, n int) start {
	a, err := einoadk.NewParallelAgent(b.Context(), &einoadk.ParallelAgentConfig{Name: "bench", Description: "bench", SubAgents: einoMembers(n)})
	if err != nil {
		b.Fatal(err)
	}
	return e.run(b, a, nil, ones(n)...)
}

// lead is an agent with its members as tools.
func (e eino) lead(b *testing.B, n int) start {
	var tools []tool.BaseTool
	for _, m := range einoMembers(n) {
		tools = append(tools, einoadk.NewAgentTool(b.Context(), m))
	}
	a, err := einoadk.NewChatModelAgent(b.Context(), &einoadk.ChatModelAgentConfig{
		Name: "bench", Description: "bench", Model: einoModel{offered: n},
		ToolsConfig: einoadk.ToolsConfig{ToolsNodeConfig: compose.ToolsNodeConfig{Tools: tools}},
	})
	if err != nil {
		b.Fatal(err)
	}
	return e.run(b, a, nil, "1")
}

// handOver is a host with specialists.
func (eino) handOver(b *testing.B, n int) start {
	var specialists []*host.Specialist
	for _, name := range names(n) {
		specialists = append(specialists, &host.Specialist{
			AgentMeta: host.AgentMeta{Name: name, IntendedUse: describes},
			Invokable: func(_ context.Context, in []*schema.Message, _ ...einoagent.AgentOption) (*schema.Message, error) {
				answer, err := count(in[len(in)-1].Content)
				return schema.AssistantMessage(answer, nil), err
			},
		})
	}
	a, err := host.NewMultiAgent(b.Context(), &host.MultiAgentConfig{Host: host.Host{ToolCallingModel: einoModel{offered: n}}, Specialists: specialists})
	if err != nil {
		b.Fatal(err)
	}
	return shared(func(ctx context.Context, _ int64) error {
		m, err := a.Generate(ctx, []*schema.Message{schema.UserMessage("0")})
		if err != nil {
			return err
		}
		return want([]string{m.Content}, nil, "1")
	})
}

func (eino) swarm(*testing.B) start { return nil }

func (e eino) depth(b *testing.B, n int) start {
	var a einoadk.Agent = einoMember{"m_"}
	for i := range n {
		var err error
		a, err = einoadk.NewSequentialAgent(b.Context(), &einoadk.SequentialAgentConfig{Name: fmt.Sprintf("t%d", i), Description: "bench", SubAgents: []einoadk.Agent{a}})
		if err != nil {
			b.Fatal(err)
		}
	}
	return e.run(b, a, nil, "1")
}

func (e eino) history(b *testing.B, n int) start {
	a, err := einoadk.NewChatModelAgent(b.Context(), &einoadk.ChatModelAgentConfig{Name: "bench", Description: "bench", Model: einoModel{messages: n + 1}})
	if err != nil {
		b.Fatal(err)
	}
	said := make([]*schema.Message, n)
	for i := range said {
		said[i] = schema.UserMessage(line(i))
		if i%2 == 1 {
			said[i] = schema.AssistantMessage(line(i), nil)
		}
	}
	return e.run(b, a, said, "1")
}

// einoModel calls a member in the middle of those offered, or counts.
type einoModel struct {
	offered  int
	messages int // that it has to be shown; 0 is any number
	tools    []*schema.ToolInfo
}

func (m einoModel) WithTools(tools []*schema.ToolInfo) (model.ToolCallingChatModel, error) {
	m.tools = tools
	return m, nil
}

func (m einoModel) Generate(_ context.Context, in []*schema.Message, options ...model.Option) (*schema.Message, error) {
	tools := m.tools
	if tools == nil {
		tools = model.GetCommonOptions(nil, options...).Tools
	}
	last := in[len(in)-1]
	switch {
	case len(tools) < m.offered || m.messages > 0 && len(in) != m.messages:
		return nil, errOffered
	case last.Role == schema.Tool:
		return schema.AssistantMessage(last.Content, nil), nil
	case m.offered > 0:
		return schema.AssistantMessage("", []schema.ToolCall{{ID: "1", Function: schema.FunctionCall{
			Name: tools[m.offered/2].Name, Arguments: `{"request":"` + last.Content + `","reason":"it counts"}`,
		}}}), nil
	}
	text, err := count(last.Content)
	return schema.AssistantMessage(text, nil), err
}

func (m einoModel) Stream(ctx context.Context, in []*schema.Message, options ...model.Option) (*schema.StreamReader[*schema.Message], error) {
	answer, err := m.Generate(ctx, in, options...)
	return schema.StreamReaderFromArray([]*schema.Message{answer}), err
}
