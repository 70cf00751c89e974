package otlp

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/agentteams/team-server/internal/testkit/testcerts"
)

// set sets variables, and unsets all others of OpenTelemetry until the test ends.
func set(t *testing.T, variables ...string) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "") // restores it
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
}

// TestRead: nothing is exported unless variables say so.
func TestRead(t *testing.T) {
	const at = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317"
	dir := t.TempDir()
	certPEM, keyPEM := testcerts.New(t, "authority").Issue(time.Now().Add(time.Hour), "client")
	cert, key := testcerts.Write(t, dir, "cert.pem", certPEM), testcerts.Write(t, dir, "key.pem", keyPEM)
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
		{"OTEL_TRACES_EXPORTER=OTLP OTEL_METRICS_EXPORTER=OTLP", Settings{Spans: true, Metrics: true}},
		{at + " OTEL_TRACES_EXPORTER=None OTEL_METRICS_EXPORTER=NONE", Settings{}},
		{at + " OTEL_METRICS_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_EXPORTER_OTLP_HEADERS=key=a%20b,x=y OTEL_PROPAGATORS=tracecontext,baggage " +
			"OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG=0.25 OTEL_BSP_SCHEDULE_DELAY=100 OTEL_EXPORTER_OTLP_COMPRESSION=gzip", Settings{Spans: true, Metrics: true}},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317/ OTEL_BSP_MAX_QUEUE_SIZE=1000000 OTEL_BSP_MAX_EXPORT_BATCH_SIZE=1000000 OTEL_BSP_EXPORT_TIMEOUT=3600000 OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT=-1", Settings{Spans: true}},
		{at + " OTEL_BSP_MAX_QUEUE_SIZE=1 OTEL_BSP_MAX_EXPORT_BATCH_SIZE=1 OTEL_EXPORTER_OTLP_CERTIFICATE=" + cert + " OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=" + cert + " OTEL_EXPORTER_OTLP_CLIENT_KEY=" + key, Settings{Spans: true}},
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
		"OTEL_TRACES_EXPORTER=zipkin":                                  "use otlp or none",
		"OTEL_TRACES_EXPORTER=otlp,console":                            "use otlp or none",
		"OTEL_METRICS_EXPORTER=prometheus":                             "use otlp or none",
		"OTEL_RESOURCE_ATTRIBUTES=no-value,key=canary " + on:           "write NAME=VALUE,NAME=VALUE",
		"OTEL_LOGS_EXPORTER=otlp":                                      "use none",
		"OTEL_SDK_DISABLED=yes":                                        "use true or false",
		"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf " + on:              "use grpc",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json " + on:           "use grpc",
		"OTEL_EXPORTER_OTLP_COMPRESSION=zstd " + on:                    "use gzip or none",
		"OTEL_EXPORTER_OTLP_INSECURE=maybe " + on:                      "use true or false",
		"OTEL_EXPORTER_OTLP_TIMEOUT=10s " + on:                         "a number from 1 to 3600000",
		"OTEL_EXPORTER_OTLP_CERTIFICATE=/no/such/file " + on:           "the name of a file with certificates in PEM",
		"OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE=/dev/zero " + on:        "the name of a file with certificates in PEM",
		"OTEL_EXPORTER_OTLP_CERTIFICATE=settings_test.go " + on:        "the name of a file with certificates in PEM",
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=settings_test.go " + on: "and OTEL_EXPORTER_OTLP_CLIENT_KEY only one is set",
		"OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE=settings_test.go OTEL_EXPORTER_OTLP_CLIENT_KEY=settings_test.go " + on: "and OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY only one is set",
		"OTEL_EXPORTER_OTLP_CLIENT_KEY=none OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=settings_test.go " + on:                    "the name of a file with a private key in PEM",
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=settings_test.go OTEL_EXPORTER_OTLP_CLIENT_KEY=settings_test.go " + on:        "are not a certificate and its private key in PEM",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317/v1/traces":                                                        "without a path",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317?key=canary":                                                       "without a path",
		"OTEL_EXPORTER_OTLP_HEADERS=a(b=canary " + on:                                                                        "NAME=VALUE",
		"OTEL_BSP_MAX_QUEUE_SIZE=99999999999 " + on:                                                                          "a number from 1 to 1000000",
		"OTEL_BSP_MAX_QUEUE_SIZE=99999999999999999999 " + on:                                                                 "a number from 1 to 1000000",
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE=4096 " + on:                                                                          "a number from 1 to 2048",
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE=101 OTEL_BSP_MAX_QUEUE_SIZE=100 " + on:                                               "a number from 1 to 100",
		"OTEL_BSP_SCHEDULE_DELAY=9223372036854775807 " + on:                                                                  "a number from 1 to 3600000",
		"OTEL_BSP_EXPORT_TIMEOUT=3600001 " + on:                                                                              "a number from 1 to 3600000",
		"OTEL_METRIC_EXPORT_TIMEOUT=0 OTEL_METRICS_EXPORTER=otlp":                                                            "a number from 1 to 3600000",
		"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT=abc " + on:                                                                   "a number from -1 to",
		"OTEL_LINK_ATTRIBUTE_COUNT_LIMIT=-2 " + on:                                                                           "a number from -1 to",
		"OTEL_EXPORTER_OTLP_ENDPOINT=127.0.0.1:4317":                                                                         "http://127.0.0.1:4317",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://me:canary@host":                                                                  "OTEL_EXPORTER_OTLP_HEADERS",
		"OTEL_EXPORTER_OTLP_HEADERS=canary " + on:                                                                            "NAME=VALUE",
		"OTEL_TRACES_SAMPLER=jaeger_remote " + on:                                                                            "parentbased_traceidratio",
		"OTEL_TRACES_SAMPLER_ARG=2 OTEL_TRACES_SAMPLER=traceidratio " + on:                                                   "a number from 0 to 1",
		"OTEL_BSP_SCHEDULE_DELAY=-1 " + on:                                                                                   "a number from 1 to 3600000",
		"OTEL_PROPAGATORS=b3 " + on:                                                                                          "tracecontext",
		"OTEL_METRIC_EXPORT_INTERVAL=x OTEL_METRICS_EXPORTER=otlp":                                                           "a number from 1 to 3600000",
	} {
		t.Run(variables, func(t *testing.T) {
			set(t, strings.Fields(variables)...)
			name, _, _ := strings.Cut(variables, "=")
			if s, err := Read(); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
	set(t, "OTEL_TRACES_EXPORTER=zipkin", "OTEL_METRICS_EXPORTER=statsd", "OTEL_BSP_SCHEDULE_DELAY=x", "OTEL_METRIC_EXPORT_INTERVAL=x")
	if _, err := Read(); err == nil || strings.Count(err.Error(), "OTEL_") != 4 {
		t.Errorf("not all faults are reported: %v", err)
	}
}

// TestNew: nothing is made if nothing is exported.
func TestNew(t *testing.T) {
	if e, err := New(t.Context(), Settings{}, nil, "v", zap.NewNop()); e != nil || err != nil || e.Spans() != nil || e.Metrics() != nil || e.Shutdown(t.Context()) != nil {
		t.Errorf("off: %v, %v", e, err)
	}
}

// TestLost: spans that a collector does not accept until the exporter ends are lost. That is logged with their number, and
// nothing that exports them is left.
func TestLost(t *testing.T) {
	defer goleak.VerifyNone(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts connections, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, address := range map[string]string{"silent": l.Addr().String(), "dead": "127.0.0.1:1"} {
		t.Run(name, func(t *testing.T) {
			set(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+address)
			core, logged := observer.New(zap.InfoLevel)
			e, err := New(t.Context(), Settings{Spans: true}, nil, "v", zap.New(core))
			if err != nil {
				t.Fatal(err)
			}
			const ended = 600 // more than one batch
			for range ended {
				_, span := e.Spans().Tracer("test").Start(t.Context(), "span")
				span.End()
			}
			if err := e.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			lost := int64(0)
			for _, line := range logged.FilterMessage("cannot export to the collector").All() {
				lost += line.ContextMap()["lost"].(int64)
			}
			if lost != ended || logged.Len() > 2 {
				t.Errorf("%d spans were reported as lost, want %d: %v", lost, ended, logged.All())
			}
		})
	}
}

// TestNothingLost: the end of an exporter that has exported everything is not logged.
func TestNothingLost(t *testing.T) {
	core, logged := observer.New(zap.InfoLevel)
	s := newSpans(discard{}, zap.New(core))
	e := &Exporter{spans: s, provider: sdktrace.NewTracerProvider(sdktrace.WithBatcher(s))}
	_, span := e.Spans().Tracer("test").Start(t.Context(), "span")
	span.End()
	if err := e.Shutdown(t.Context()); err != nil || logged.Len() != 0 {
		t.Errorf("%v; logged %v", err, logged.All())
	}
}

// discard exports to nowhere.
type discard struct{}

func (discard) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                             { return nil }

// TestLogTo: what the libraries log is in the log, without values that may be secrets.
func TestLogTo(t *testing.T) {
	core, logged := observer.New(zap.DebugLevel)
	LogTo(zap.New(core))
	defer LogTo(zap.NewNop())
	otel.Handle(errors.New("handled"))
	set(t, "OTEL_EXPORTER_OTLP_TIMEOUT=canary") // New does not check it
	e, err := New(t.Context(), Settings{Spans: true}, nil, "v", zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	lines := logged.All()
	if len(lines) < 2 || lines[0].ContextMap()["error"] != "handled" || lines[1].ContextMap()["what"] != "parse duration" {
		t.Errorf("logged: %v", lines)
	}
	for _, line := range lines {
		if line.Level != zap.WarnLevel {
			t.Errorf("%v", line)
		}
	}
}
