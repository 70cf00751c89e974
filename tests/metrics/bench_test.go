package metrics

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/logs"
	"github.com/agentteams/team-server/internal/metrics/scrape"
	"github.com/agentteams/team-server/pkg/scripted"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// BenchmarkSend compares a server without log and metrics with one that logs at the level info, and one with
// metrics.
func BenchmarkSend(b *testing.B) {
	a, err := scripted.New(scripted.Config{ID: "parrot", Steps: []*teamv1.ScriptedStep{{Do: &teamv1.ScriptedStep_Text{Text: "x"}}}})
	if err != nil {
		b.Fatal(err)
	}
	for _, of := range []struct {
		name     string
		log      *zap.Logger
		measured bool
	}{{"off", nil, false}, {"log", logs.New(io.Discard, zapcore.InfoLevel, true), false}, {"metrics", nil, true}} {
		var meter metric.Meter
		if of.measured {
			l, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			s, err := scrape.New(l, zap.NewNop())
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = s.Close() })
			meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.Reader())).Meter("bench")
		}
		s, err := server.New(server.Config{Agents: rig.Manager(b, a), Log: of.log, Meter: meter, Settings: &teamv1.ServerSettings{Grpc: "127.0.0.1:0", Http: "127.0.0.1:0"}})
		if err != nil {
			b.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- s.Serve(ctx) }()
		b.Cleanup(func() {
			stop()
			if err := <-served; err != nil {
				b.Error(err)
			}
		})
		for _, c := range rig.Clients(b, rig.Target{GRPC: s.Addrs().GRPC, HTTP: s.Addrs().URL}) {
			n := 0
			b.Run(c.Binding()+"/"+of.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					n++
					if _, err := c.Send(b.Context(), rig.Text("parrot", fmt.Sprint("m", n), "x")); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
