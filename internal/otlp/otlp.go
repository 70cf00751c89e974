// Package otlp exports spans and metrics to a collector, over OTLP with gRPC. The variables of the environment
// that OpenTelemetry defines say what is exported, and where to.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
)

const (
	// byDefault is the address of the collector if none is set; that of the specification of OTLP.
	byDefault = "http://localhost:4317"
	// flushTimeout is the timeout for the export of the spans that are left when a server stops.
	flushTimeout = 3 * time.Second
	// logEvery is the interval at which a failure that lasts is logged.
	logEvery = time.Minute
)

// Exporter exports spans and metrics in the background. A nil *Exporter exports nothing.
type Exporter struct {
	provider *sdktrace.TracerProvider // nil without spans
	spans    *spans                   // nil without spans
	metrics  []sdkmetric.Option       // for a provider of meters; none without metrics
}

// New returns an exporter, or nil if s exports nothing. It does not wait for the collector. ids makes the ids of
// spans; version is that of the program. The caller must call Shutdown.
func New(ctx context.Context, s Settings, ids sdktrace.IDGenerator, version string, log *zap.Logger) (*Exporter, error) {
	if s == (Settings{}) {
		return nil, nil //nolint:nilnil // nothing is exported
	}
	of, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "team-server"), attribute.String("service.version", version),
		attribute.String("service.instance.id", uuid.NewString())), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describing this process: %w", err)
	}
	e := &Exporter{}
	if s.Spans {
		to, err := otlptracegrpc.New(ctx, orDefault(tracesEndpointVar, otlptracegrpc.WithEndpointURL)...)
		if err != nil {
			return nil, fmt.Errorf("exporting spans: %w", err)
		}
		e.spans = newSpans(to, log)
		e.provider = sdktrace.NewTracerProvider(sdktrace.WithResource(of), sdktrace.WithIDGenerator(ids), sdktrace.WithBatcher(e.spans))
	}
	if s.Metrics {
		to, err := otlpmetricgrpc.New(ctx, orDefault(metricsEndpointVar, otlpmetricgrpc.WithEndpointURL)...)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("exporting metrics: %w", err), e.Shutdown(ctx))
		}
		e.metrics = []sdkmetric.Option{sdkmetric.WithResource(of), sdkmetric.WithReader(sdkmetric.NewPeriodicReader(&metrics{to, report{log: log, what: "metrics"}}))}
	}
	return e, nil
}

// orDefault returns the option for the default address if the environment has none.
func orDefault[O any](variable string, address func(string) O) []O {
	if value(variable) != "" || value(endpointVar) != "" {
		return nil
	}
	return []O{address(byDefault)}
}

// Spans returns the provider whose spans are exported, or nil if spans are not exported.
func (e *Exporter) Spans() trace.TracerProvider {
	if e == nil || e.provider == nil {
		return nil
	}
	return e.provider
}

// Metrics returns the options for a provider of meters whose metrics are exported. It returns no options if metrics are
// not exported. The provider exports what is left when it is shut down.
func (e *Exporter) Metrics() []sdkmetric.Option {
	if e == nil {
		return nil
	}
	return e.metrics
}

// Shutdown exports the spans that are left, for at most flushTimeout, and ends the exporter of spans. Those that cannot be
// exported are lost, which is only logged.
func (e *Exporter) Shutdown(ctx context.Context) error {
	if e == nil || e.provider == nil {
		return nil
	}
	timer := time.AfterFunc(flushTimeout, e.spans.giveUp)
	defer timer.Stop()
	defer e.spans.giveUp()
	defer e.spans.end()
	return e.provider.Shutdown(context.WithoutCancel(ctx)) // waits for exports, which giveUp ends
}

// spans is an exporter whose failures are logged.
type spans struct {
	sdktrace.SpanExporter
	report
	givenUp context.Context //nolint:containedctx // ends all exports at once
	giveUp  context.CancelFunc
}

func newSpans(to sdktrace.SpanExporter, log *zap.Logger) *spans {
	s := &spans{SpanExporter: to, report: report{log: log, what: "spans"}}
	s.givenUp, s.giveUp = context.WithCancel(context.Background())
	return s
}

// ExportSpans implements sdktrace.SpanExporter.
func (s *spans) ExportSpans(ctx context.Context, list []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.givenUp, cancel)()
	s.ended(s.SpanExporter.ExportSpans(ctx, list), len(list))
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (s *spans) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return s.SpanExporter.Shutdown(ctx)
}

// metrics is an exporter whose failures are logged.
type metrics struct {
	sdkmetric.Exporter
	report
}

// Export implements sdkmetric.Exporter.
func (m *metrics) Export(ctx context.Context, of *metricdata.ResourceMetrics) error {
	m.ended(m.Exporter.Export(ctx, of), 1)
	return nil
}

// report logs failures, one in logEvery, and when the exporter works again.
type report struct {
	log  *zap.Logger
	what string

	mu     sync.Mutex
	failed bool      // guarded by mu
	logged time.Time // guarded by mu
	lost   int       // since the last line; guarded by mu
	err    error     // of the last failure; guarded by mu
}

// ended reports the end of an export of n spans or metrics.
func (r *report) ended(err error, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil && r.failed:
		r.log.Info("exporting works again", zap.String("what", r.what))
		r.failed, r.logged, r.lost = false, time.Time{}, 0
	case err != nil:
		r.failed, r.err = true, err
		if r.lost += n; time.Since(r.logged) >= logEvery {
			r.write()
		}
	}
}

// end logs what was lost since the last line.
func (r *report) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost > 0 {
		r.write()
	}
}

// write logs what was lost. The caller must hold r.mu.
func (r *report) write() {
	r.log.Warn("cannot export to the collector", zap.String("what", r.what), zap.Int("lost", r.lost), zap.Error(r.err))
	r.logged, r.lost = time.Now(), 0
}
