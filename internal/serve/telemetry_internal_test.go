package serve

import (
	"context"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/collector"
)

// TestTelemetry_ListenerFails: metrics are exported to the collector also after their listener has failed. If it cannot
// listen, nothing of the exporter is left.
func TestTelemetry_ListenerFails(t *testing.T) {
	to := collector.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", to.URL)
	t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
	core, logged := observer.New(zap.ErrorLevel)
	log := zap.New(core)
	m, err := startTelemetry(t.Context(), &teamv1.ServerSettings{Metrics: "127.0.0.1:0"}, log)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := startTelemetry(t.Context(), &teamv1.ServerSettings{Metrics: m.address()}, log); err == nil { // goleak finds what is left
		t.Error("listens on an address in use")
	}
	if err := m.scraped.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	failed := make(chan struct{})
	served := make(chan struct{})
	go func() {
		defer close(served)
		m.serve(ctx, log.WithOptions(zap.Hooks(func(e zapcore.Entry) error {
			if e.Level == zap.ErrorLevel {
				close(failed)
			}
			return nil
		})))
	}()
	<-failed
	late, err := m.meter().Int64Counter("late")
	if err != nil {
		t.Fatal(err)
	}
	late.Add(t.Context(), 1)
	stop()
	<-served
	if !to.HasMetric("late") || logged.Len() != 1 {
		t.Errorf("the metrics after the failure are not exported; logged: %v", logged.All())
	}
}
