// Command adkgo serves an agent of adk-go that echoes, with its executor for the official Go SDK; sessions
// and tasks are in memory. It prints the URL for JSON-RPC when it is ready; its card is below that. If
// OTEL_EXPORTER_OTLP_ENDPOINT is set, it exports the spans of adk-go there over gRPC, in the trace of its
// caller.
package main

import (
	"context"
	"fmt"
	"iter"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
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
	url := fmt.Sprintf("http://%s/", l.Addr())
	mux := http.NewServeMux()
	mux.Handle("POST /", a2asrv.NewJSONRPCHandler(handler))
	mux.Handle("GET "+a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(&a2a.AgentCard{
		Name: "echo", Description: "Echoes.", Version: "1",
		SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface(url, a2a.TransportProtocolJSONRPC)},
		Capabilities:        a2a.AgentCapabilities{Streaming: true},
		DefaultInputModes:   []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
		Skills: []a2a.AgentSkill{{ID: "echo", Name: "Echo", Description: "Echoes.", Tags: []string{"echo"}}},
	}))
	root, err := traced(mux)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready " + url)
	log.Fatal(http.Serve(l, root)) //nolint:gosec // a server for benchmarks on loopback
}

// traced has adk-go export its spans if the environment names a collector, and returns a handler that has
// them begin in the trace of the caller.
func traced(h http.Handler) (http.Handler, error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
		return h, nil
	}
	exporter, err := otlptracegrpc.New(context.Background())
	if err != nil {
		return nil, err
	}
	otel.SetTracerProvider(trace.NewTracerProvider(trace.WithSyncer(exporter)))
	otel.SetTextMapPropagator(propagation.TraceContext{})
	return otelhttp.NewHandler(h, "request"), nil
}
