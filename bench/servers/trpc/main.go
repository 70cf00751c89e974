// Command trpc serves an agent of trpc-agent-go that echoes, with its server for A2A 0.3; sessions
// are in memory. It prints the URL for JSON-RPC when it is ready.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"

	"trpc.group/trpc-go/trpc-agent-go/agent"
	"trpc.group/trpc-go/trpc-agent-go/event"
	trpclog "trpc.group/trpc-go/trpc-agent-go/log"
	"trpc.group/trpc-go/trpc-agent-go/model"
	"trpc.group/trpc-go/trpc-agent-go/runner"
	a2a "trpc.group/trpc-go/trpc-agent-go/server/a2a"
	"trpc.group/trpc-go/trpc-agent-go/session/inmemory"
	"trpc.group/trpc-go/trpc-agent-go/tool"
)

// echo answers with the text it is sent.
type echo struct{}

func (echo) Tools() []tool.Tool              { return nil }
func (echo) SubAgents() []agent.Agent        { return nil }
func (echo) FindSubAgent(string) agent.Agent { return nil }
func (echo) Info() agent.Info                { return agent.Info{Name: "echo", Description: "Echoes."} }

// Run yields the answer.
func (echo) Run(_ context.Context, inv *agent.Invocation) (<-chan *event.Event, error) {
	events := make(chan *event.Event, 1)
	answer := &model.Response{
		ID: inv.InvocationID, Object: model.ObjectTypeChatCompletion, Done: true, Choices: []model.Choice{{Message: model.NewAssistantMessage(inv.Message.Content)}},
	}
	ev := event.NewResponseEvent(inv.InvocationID, "echo", answer)
	agent.InjectIntoEvent(inv, ev)
	events <- ev
	close(events)
	return events, nil
}

// handler returns the server for a base URL.
func handler(base string) (http.Handler, error) {
	card, err := a2a.NewAgentCard("echo", "Echoes.", base, true)
	if err != nil {
		return nil, err
	}
	server, err := a2a.New(a2a.WithRunner(runner.NewRunner("echo", echo{}, runner.WithSessionService(inmemory.NewSessionService()))), a2a.WithAgentCard(card))
	if err != nil {
		return nil, err
	}
	return server.Handler(), nil
}

func main() {
	trpclog.SetLevel(trpclog.LevelError)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	base := fmt.Sprintf("http://%s/", l.Addr())
	h, err := handler(base)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ready %s\n", base)
	log.Fatal(http.Serve(l, h)) //nolint:gosec // a server for benchmarks on loopback
}
