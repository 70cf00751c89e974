package otlp

import (
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
)

// set sets variables, and unsets all others of OpenTelemetry that the tests set.
func set(t *testing.T, variables ...string) {
	t.Helper()
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
}

// TestRead: nothing is exported unless variables say so.
func TestRead(t *testing.T) {
	const at = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317"
	for _, c := range []struct {
		variables string
		want      Settings
	}{
		{"", Settings{}},
		{"OTEL_SERVICE_NAME=x", Settings{}},
		{at, Settings{Spans: true}},
		{at + " OTEL_TRACES_EXPORTER=none", Settings{}},
		{at + " OTEL_SDK_DISABLED=true", Settings{}},
		{at + " OTEL_SDK_DISABLED=TRUE OTEL_TRACES_EXPORTER=zipkin", Settings{}},
		{at + " OTEL_SDK_DISABLED=false", Settings{Spans: true}},
		{at + " OTEL_METRICS_EXPORTER=none OTEL_LOGS_EXPORTER=none", Settings{Spans: true}},
		{"OTEL_TRACES_EXPORTER=otlp", Settings{Spans: true}},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://collector.example", Settings{Spans: true}},
		{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=https://collector.example", Settings{}},
		{"OTEL_METRICS_EXPORTER=otlp", Settings{Metrics: true}},
		{at + " OTEL_METRICS_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_EXPORTER_OTLP_HEADERS=key=a%20b,x=y OTEL_PROPAGATORS=tracecontext,baggage " +
			"OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG=0.25 OTEL_BSP_SCHEDULE_DELAY=100 OTEL_EXPORTER_OTLP_COMPRESSION=gzip", Settings{Spans: true, Metrics: true}},
	} {
		t.Run(c.variables, func(t *testing.T) {
			set(t, strings.Fields(c.variables)...)
			if got, err := Read(); err != nil || got != c.want {
				t.Errorf("%+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

// TestRefused: a value that is not supported is refused with the name of the variable and what is supported. What
// may be a secret is not shown.
func TestRefused(t *testing.T) {
	const on = "OTEL_TRACES_EXPORTER=otlp"
	for variables, want := range map[string]string{
		"OTEL_TRACES_EXPORTER=zipkin":                                      "use otlp or none",
		"OTEL_TRACES_EXPORTER=otlp,console":                                "use otlp or none",
		"OTEL_METRICS_EXPORTER=prometheus":                                 "use otlp or none",
		"OTEL_LOGS_EXPORTER=otlp":                                          "use none",
		"OTEL_SDK_DISABLED=yes":                                            "use true or false",
		"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf " + on:                  "use grpc",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json " + on:               "use grpc",
		"OTEL_EXPORTER_OTLP_COMPRESSION=zstd " + on:                        "use gzip or none",
		"OTEL_EXPORTER_OTLP_INSECURE=maybe " + on:                          "use true or false",
		"OTEL_EXPORTER_OTLP_TIMEOUT=10s " + on:                             "a number above 0",
		"OTEL_EXPORTER_OTLP_CERTIFICATE=/no/such/file " + on:               "the name of a file",
		"OTEL_EXPORTER_OTLP_ENDPOINT=127.0.0.1:4317":                       "http://127.0.0.1:4317",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://me:canary@host":                "OTEL_EXPORTER_OTLP_HEADERS",
		"OTEL_EXPORTER_OTLP_HEADERS=canary " + on:                          "NAME=VALUE",
		"OTEL_TRACES_SAMPLER=jaeger_remote " + on:                          "parentbased_traceidratio",
		"OTEL_TRACES_SAMPLER_ARG=2 OTEL_TRACES_SAMPLER=traceidratio " + on: "a number from 0 to 1",
		"OTEL_BSP_SCHEDULE_DELAY=-1 " + on:                                 "a number above 0",
		"OTEL_PROPAGATORS=b3 " + on:                                        "tracecontext",
		"OTEL_METRIC_EXPORT_INTERVAL=x OTEL_METRICS_EXPORTER=otlp":         "a number above 0",
	} {
		t.Run(variables, func(t *testing.T) {
			set(t, strings.Fields(variables)...)
			name, _, _ := strings.Cut(variables, "=")
			if s, err := Read(); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
	set(t, "OTEL_TRACES_EXPORTER=zipkin", "OTEL_METRICS_EXPORTER=statsd")
	if _, err := Read(); err == nil || strings.Count(err.Error(), "OTEL_") != 2 {
		t.Errorf("not all faults are reported: %v", err)
	}
}

// TestNew: attributes that cannot be read, and files that are none, are refused; and nothing is made if nothing is exported.
func TestNew(t *testing.T) {
	if e, err := New(t.Context(), Settings{}, nil, "v", zap.NewNop()); e != nil || err != nil || e.Spans() != nil || e.Metrics() != nil || e.Shutdown(t.Context()) != nil {
		t.Errorf("off: %v, %v", e, err)
	}
	set(t, "OTEL_RESOURCE_ATTRIBUTES=no-value", "OTEL_EXPORTER_OTLP_CERTIFICATE="+filepath.Join(t.TempDir(), "none"))
	if _, err := New(t.Context(), Settings{Spans: true}, nil, "v", zap.NewNop()); err == nil || !strings.Contains(err.Error(), "OTEL_RESOURCE_ATTRIBUTES") {
		t.Errorf("the error is %v", err)
	}
}
