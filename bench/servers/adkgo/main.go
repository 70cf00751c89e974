// Command adkgo serves an agent of adk-go that echoes, with its executor for the official Go SDK; sessions
// and tasks are in memory. It prints the URL for JSON-RPC when it is ready.
package main

import (
	"fmt"
	"iter"
	"log"
	"log/slog"
	"net"
	"net/http"

	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/runner"
	adka2a "google.golang.org/adk/v2/server/adka2a/v2"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"
)

func main() {
	echo, err := agent.New(agent.Config{Name: "echo", Description: "Echoes.", Run: func(ctx agent.InvocationContext) iter.Seq2[*session.Event, error] {
		return func(yield func(*session.Event, error) bool) {
			ev := session.NewEvent(ctx, ctx.InvocationID())
			ev.LLMResponse = model.LLMResponse{Content: genai.NewContentFromText(ctx.UserContent().Parts[0].Text, genai.RoleModel)}
			yield(ev, nil)
		}
	}})
	if err != nil {
		log.Fatal(err)
	}
	executor := adka2a.NewExecutor(adka2a.ExecutorConfig{
		RunnerConfig: runner.Config{AppName: "echo", Agent: echo, SessionService: session.InMemoryService(), AutoCreateSession: true},
	})
	handler := a2asrv.NewHandler(executor, a2asrv.WithLogger(slog.New(slog.DiscardHandler)))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ready http://%s/\n", l.Addr())
	log.Fatal(http.Serve(l, a2asrv.NewJSONRPCHandler(handler))) //nolint:gosec // a server for benchmarks on loopback
}
