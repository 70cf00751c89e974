package serve

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/metrics/scrape"
	"github.com/agentteams/team-server/internal/otlp"
	"github.com/agentteams/team-server/pkg/secret"
	"github.com/agentteams/team-server/pkg/server"
)

const (
	// maxSeries is how many combinations of labels an instrument has at most, whatever its labels are. The
	// SDK counts further ones together, with the label otel_metric_overflow.
	maxSeries = 4000
	// metricsTimeout is the timeout for the export of the metrics that are left at the end.
	metricsTimeout = 2 * time.Second
)

// telemetry serves metrics to Prometheus, and exports spans and metrics to a collector, each if it is configured. A
// nil *telemetry does nothing.
type telemetry struct {
	scraped  *scrape.Server           // nil without a listener
	exporter *otlp.Exporter           // nil if nothing is exported
	meters   *sdkmetric.MeterProvider // of metrics that are scraped or exported; nil without
}

// startTelemetry listens on the address for metrics, and reads from the environment what is exported.
func startTelemetry(ctx context.Context, settings *teamv1.ServerSettings, log *zap.Logger) (*telemetry, error) {
	exported, err := otlp.Read()
	if err != nil {
		return nil, err
	}
	otlp.LogTo(log.Named("otel"))
	t := &telemetry{}
	if address := settings.GetMetrics(); address != "" {
		if t.scraped, err = listenMetrics(ctx, address, log.Named("metrics")); err != nil {
			return nil, err
		}
	}
	// The exporter is the last that can fail: what reads metrics for it ends with the provider of meters.
	if t.exporter, err = otlp.New(ctx, exported, server.TraceIDs{}, Version(), log.Named("otlp")); err != nil {
		return nil, errors.Join(err, t.close())
	}
	options := t.exporter.Metrics()
	if t.scraped != nil {
		options = append(options, sdkmetric.WithReader(t.scraped.Reader()))
	}
	if len(options) > 0 {
		t.meters = sdkmetric.NewMeterProvider(append(options, sdkmetric.WithCardinalityLimit(maxSeries), sdkmetric.WithExemplarFilter(exemplar.AlwaysOffFilter))...)
	}
	return t, nil
}

// listenMetrics listens on the address for metrics.
func listenMetrics(ctx context.Context, address string, log *zap.Logger) (*scrape.Server, error) {
	l, err := listenTCP(ctx, address)
	if err != nil {
		return nil, cannotListen("Choose another port for server.metrics", address, err)
	}
	return scrape.New(l, log)
}

// meter returns the meter, nil without metrics.
func (t *telemetry) meter() metric.Meter {
	if t == nil || t.meters == nil {
		return nil
	}
	return t.meters.Meter("github.com/agentteams/team-server")
}

// tracing returns where the traces of a server go. secrets are not exported.
func (t *telemetry) tracing(secrets func() []secret.Secret) server.Tracing {
	if t == nil {
		return server.Tracing{}
	}
	return server.Tracing{Provider: t.exporter.Spans(), Secrets: secrets}
}

// address returns the address of the listener, Off without one.
func (t *telemetry) address() string {
	if t == nil || t.scraped == nil {
		return Off
	}
	return t.scraped.Addr()
}

// serve serves metrics until ctx ends, and then exports what is left. Failures are only logged: the server works without
// telemetry, and what is exported is exported also if the listener fails.
func (t *telemetry) serve(ctx context.Context, log *zap.Logger) {
	if t == nil {
		return
	}
	if t.scraped != nil {
		log.Info("serving metrics", zap.String("address", "http://"+t.scraped.Addr()+scrape.Path))
		if err := t.scraped.Serve(ctx); err != nil {
			log.Error("metrics are not served any more; restart the server to get them back", zap.Error(err))
		}
	}
	<-ctx.Done()
	if err := t.close(); err != nil {
		log.Warn("the end of the export of spans and metrics has failed", zap.Error(err))
	}
}

// close closes the listener, and exports what is left.
func (t *telemetry) close() error {
	if t == nil {
		return nil
	}
	var errs []error
	if t.scraped != nil {
		errs = append(errs, t.scraped.Close())
	}
	if t.meters != nil {
		ctx, cancel := context.WithTimeout(context.Background(), metricsTimeout)
		defer cancel()
		if err := t.meters.Shutdown(ctx); ctx.Err() == nil { // otherwise what is left is lost
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, t.exporter.Shutdown(context.Background()))...)
}
