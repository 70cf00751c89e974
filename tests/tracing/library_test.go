package tracing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/logs"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/internal/testkit/collector"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/broadcast"
	"github.com/agentteams/team-server/tests/rig"
)

// lines is a log of JSON lines. It is safe for concurrent use.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// with returns the lines with a message.
func (l *lines) with(t *testing.T, message string) []map[string]any {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []map[string]any
	for line := range strings.Lines(l.text.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if fields["msg"] == message {
			found = append(found, fields)
		}
	}
	return found
}

// TestS_66_Library: a Go program sets a provider of its own. Spans that its agents start are below those of the server,
// and lines of the log name the spans that they belong to.
func TestS_66_Library(t *testing.T) {
	kept := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(server.TraceIDs{}), sdktrace.WithSyncer(kept))
	works := &agent.Func{ID: "works", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
		_, span := provider.Tracer("mine").Start(ctx, "my work")
		span.End()
		return agent.NewMessage("done"), nil
	}}
	fails := &agent.Func{ID: "fails", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
		return nil, agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "down").Because(errors.New("broken"))
	}}
	m := rig.Manager(t, works, fails)
	log := &lines{}
	desk, err := team.New(team.Config{ID: "desk", Log: logs.New(log, zapcore.InfoLevel, true), Registry: m, Members: []team.Member{{Agent: "works"}, {Agent: "fails"}}, Scheduler: broadcast.New(broadcast.Config{}), Limits: &teamv1.Limits{Retry: &teamv1.Retry{Attempts: proto.Int32(1)}}})
	if err != nil {
		t.Fatal(err)
	}
	s, stop := rig.Start(t, server.Config{Agent: desk, Tracing: server.Tracing{Provider: provider}, Log: logs.New(log, zapcore.InfoLevel, true)})
	resp, err := rig.NewREST(s).Send(t.Context(), rig.Text("desk", "m1", "x"))
	if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_FAILED {
		t.Fatal(resp, err)
	}
	stop()
	spans := map[string]tracetest.SpanStub{}
	for _, span := range kept.GetSpans() {
		spans[span.Name] = span
	}
	for below, above := range map[string]string{"my work": "invoke_agent works", "invoke_agent works": "invoke_agent desk", "invoke_agent desk": "SendMessage"} {
		if got := spans[below].Parent.SpanID(); got != spans[above].SpanContext.SpanID() || !got.IsValid() {
			t.Errorf("%q is below %s, want %q", below, got, above)
		}
	}
	for message, name := range map[string]string{"request": "SendMessage", "member did not succeed": "invoke_agent desk"} {
		sc := spans[name].SpanContext
		found := log.with(t, message)
		if len(found) == 0 || found[0]["trace_id"] != sc.TraceID().String() || found[0]["span_id"] != sc.SpanID().String() {
			t.Errorf("lines %q: %v, want those of %s", message, found, sc.SpanID())
		}
	}
	if _, err := server.New(server.Config{Agent: desk, Tracing: server.Tracing{Provider: sdktrace.NewTracerProvider()}, Settings: &teamv1.ServerSettings{Grpc: "127.0.0.1:0", Http: "127.0.0.1:0"}}); err == nil || !strings.Contains(err.Error(), "server.TraceIDs") {
		t.Errorf("a provider without TraceIDs: %v", err)
	}
}

// started starts a server with an agent and these settings in this process.
func started(t testing.TB, settings string, log *lines) (*serve.Running, error) {
	t.Helper()
	return startedWith(t, "server: {default_agent: echo"+settings+"}\n", log)
}

// startedWith starts a server with an agent and the rest of a file.
func startedWith(t testing.TB, rest string, log *lines) (*serve.Running, error) {
	t.Helper()
	def, err := config.Loader{}.Parse("team.yaml", []byte("version: v1\nagents: {echo: {scripted: {steps: [{echo: true}]}}}\n"+rest))
	if err != nil {
		t.Fatal(err)
	}
	return serve.Start(context.Background(), def, serve.Config{HTTP: "127.0.0.1:0", GRPC: serve.Off, Log: logs.New(log, zapcore.WarnLevel, true)})
}

// TestS_66_NoCollector: a collector that does not answer delays neither runs nor the end of the server, and is logged once while
// the server runs. At the end, all that is lost has been logged.
func TestS_66_NoCollector(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "5")
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "50")
	t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
	t.Setenv("OTEL_METRIC_EXPORT_TIMEOUT", "50")
	log := &lines{}
	r, err := started(t, "", log)
	if err != nil {
		t.Fatal(err)
	}
	const failed = "cannot export to the collector"
	until := time.After(30 * time.Second)
	n := 0
	for ; len(log.with(t, failed)) == 0 || n < 20; n++ {
		if resp, err := rig.NewREST(rig.Target{HTTP: "http://" + r.HTTP}).Send(t.Context(), rig.Text("echo", fmt.Sprint("m", n), "x")); err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			t.Fatal(resp, err)
		}
		select {
		case <-until:
			t.Fatal("the failure is not logged")
		default:
		}
	}
	if lines := log.with(t, failed); len(lines) != 1 || lines[0]["what"] != "spans" {
		t.Errorf("while the server runs it logs %v", lines)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	lines, lost := map[any]int{}, map[any]float64{}
	for _, line := range log.with(t, failed) {
		lines[line["what"]]++
		lost[line["what"]] += line["lost"].(float64)
	}
	if lines["spans"] != 2 || lines["metrics"] != 1 {
		t.Errorf("%v lines, want one about spans at the first failure, and one about each at the end", lines)
	}
	if want := float64(3 * n); lost["spans"] != want { // a request, its run, and the claim
		t.Errorf("%v spans are logged as lost, want %v", lost["spans"], want)
	}
}

// TestS_66_Metrics: metrics go to the collector, with and without the listener for Prometheus, and without spans unless
// they are exported as well.
func TestS_66_Metrics(t *testing.T) {
	for _, settings := range []string{"", ", metrics: 127.0.0.1:0"} {
		to := collector.New(t)
		t.Setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", to.URL)
		t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
		r, err := started(t, settings, &lines{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rig.NewREST(rig.Target{HTTP: "http://" + r.HTTP}).Send(t.Context(), rig.Text("echo", "m1", "x")); err != nil {
			t.Fatal(err)
		}
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		if !to.HasMetric("team_server.requests") || len(to.Spans()) > 0 {
			t.Errorf("%q: %d spans, and the metrics are missing", settings, len(to.Spans()))
		}
	}
}

// TestS_66_Refused: a variable with a value that is not supported is refused when the server starts.
func TestS_66_Refused(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "zipkin")
	r, err := started(t, "", &lines{})
	if err == nil {
		_ = r.Stop()
	}
	if err == nil || !strings.Contains(err.Error(), "OTEL_TRACES_EXPORTER") || !strings.Contains(err.Error(), "otlp or none") {
		t.Errorf("the error is %v", err)
	}
}
