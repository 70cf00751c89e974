package otlp

import (
	"cmp"
	"context"
	"errors"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Signal is something that is exported to a collector.
type Signal struct {
	// Name is spans or metrics.
	Name string
	// Collector is the address of the collector.
	Collector string
	// Probe sends an empty export to the collector, as an Exporter does, and returns why it was not accepted.
	Probe func(ctx context.Context) error
}

// Signals returns what is exported.
func (s Settings) Signals() (all []Signal) {
	if s.Spans {
		all = append(all, Signal{"spans", collector(tracesEndpointVar), probeSpans})
	}
	if s.Metrics {
		all = append(all, Signal{"metrics", collector(metricsEndpointVar), probeMetrics})
	}
	return all
}

// collector returns the address of the collector of a signal.
func collector(variable string) string {
	return cmp.Or(value(variable), value(endpointVar), byDefault)
}

func probeSpans(ctx context.Context) error {
	c := otlptracegrpc.NewClient(append(orDefault(tracesEndpointVar, otlptracegrpc.WithEndpointURL), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}))...)
	if err := c.Start(ctx); err != nil {
		return err
	}
	return errors.Join(c.UploadTraces(ctx, nil), c.Stop(context.WithoutCancel(ctx)))
}

func probeMetrics(ctx context.Context) error {
	e, err := otlpmetricgrpc.New(ctx, append(orDefault(metricsEndpointVar, otlpmetricgrpc.WithEndpointURL), otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{}))...)
	if err != nil {
		return err
	}
	return errors.Join(e.Export(ctx, &metricdata.ResourceMetrics{}), e.Shutdown(context.WithoutCancel(ctx)))
}
