package serve

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/metrics/scrape"
	"github.com/agentteams/team-server/internal/otlp"
	"github.com/agentteams/team-server/pkg/secret"
	"github.com/agentteams/team-server/pkg/server"
)

// telemetry serves metrics to Prometheus, and exports spans and metrics to a collector, each if it is configured. A
// nil *telemetry does nothing.
type telemetry struct {
	scraped  *scrape.Server   // nil without a listener
	exporter *otlp.Exporter   // nil if nothing is exported
	meters   *scrape.Provider // of metrics that are exported only; nil without
}

// startTelemetry listens on the address for metrics, and reads from the environment what is exported.
func startTelemetry(ctx context.Context, settings *teamv1.ServerSettings, log *zap.Logger) (*telemetry, error) {
	exported, err := otlp.Read()
	if err != nil {
		return nil, err
	}
	if err := checkMetrics(settings); err != nil {
		return nil, fmt.Errorf("server.metrics: %w", err)
	}
	t := &telemetry{}
	if t.exporter, err = otlp.New(ctx, exported, server.TraceIDs{}, Version(), log.Named("otlp")); err != nil {
		return nil, err
	}
	options := t.exporter.Metrics()
	switch address := settings.GetMetrics(); {
	case address != "":
		l, err := listenTCP(ctx, address)
		if err != nil {
			return nil, errors.Join(cannotListen("Set server.metrics to 127.0.0.1:0", address, err), t.exporter.Shutdown(ctx))
		}
		if t.scraped, err = scrape.New(l, log.Named("metrics"), options...); err != nil {
			return nil, errors.Join(err, t.exporter.Shutdown(ctx))
		}
	case exported.Metrics:
		t.meters = scrape.NewProvider(options...)
	}
	return t, nil
}

// meter returns the meter, nil without metrics.
func (t *telemetry) meter() metric.Meter {
	switch {
	case t == nil:
		return nil
	case t.scraped != nil:
		return t.scraped.Meter()
	case t.meters != nil:
		return scrape.MeterOf(t.meters)
	}
	return nil
}

// tracing returns what a server traces. secrets are not exported.
func (t *telemetry) tracing(def *config.Config, secrets func() []secret.Secret) server.Tracing {
	if t == nil {
		return server.Tracing{}
	}
	settings := def.Server.GetServer().GetTracing()
	return server.Tracing{Provider: t.exporter.Spans(), TrustCallers: settings.GetTrustCallers(), Content: settings.GetContent(), Secrets: secrets}
}

// address returns the address of the listener, Off without one.
func (t *telemetry) address() string {
	if t == nil || t.scraped == nil {
		return Off
	}
	return t.scraped.Addr()
}

// serve serves metrics until ctx ends, and then exports what is left. Failures are only logged: the server works without
// telemetry.
func (t *telemetry) serve(ctx context.Context, log *zap.Logger) {
	switch {
	case t == nil:
		return
	case t.scraped == nil:
		<-ctx.Done()
		if err := t.close(); err != nil {
			log.Warn("the end of the export of spans and metrics has failed", zap.Error(err))
		}
		return
	}
	log.Info("serving metrics", zap.String("address", "http://"+t.scraped.Addr()+scrape.Path))
	if err := t.scraped.Serve(ctx); err != nil {
		log.Error("metrics are not served any more; restart the server to get them back", zap.Error(err))
	}
	<-ctx.Done()
	if err := t.exporter.Shutdown(ctx); err != nil {
		log.Warn("the end of the export of spans has failed", zap.Error(err))
	}
}

// close ends what serve does not end.
func (t *telemetry) close() error {
	if t == nil {
		return nil
	}
	var errs []error
	if t.scraped != nil {
		errs = append(errs, t.scraped.Close())
	}
	if t.meters != nil {
		errs = append(errs, scrape.Shutdown(t.meters))
	}
	return errors.Join(append(errs, t.exporter.Shutdown(context.Background()))...)
}
