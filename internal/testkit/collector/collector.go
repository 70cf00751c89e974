// Package collector is a collector of OpenTelemetry for tests: it receives spans and metrics over OTLP with gRPC, and
// prints traces as trees.
package collector

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	colmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Collector receives what is exported. It is safe for concurrent use.
type Collector struct {
	// URL is its address, for OTEL_EXPORTER_OTLP_ENDPOINT.
	URL string

	mu      sync.Mutex
	spans   []Span          // guarded by mu
	metrics map[string]bool // names; guarded by mu
	conns   int             // guarded by mu
	changed chan struct{}   // closed and replaced when something arrives; guarded by mu
}

// Span is a span that was received.
type Span struct {
	*tracev1.Span
	// Service is the service.name of its resource.
	Service string
}

// New starts a collector. It is stopped when the test ends.
func New(t testing.TB) *Collector {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{URL: "http://" + l.Addr().String(), metrics: map[string]bool{}, changed: make(chan struct{})}
	s := grpc.NewServer()
	coltrace.RegisterTraceServiceServer(s, traces{Collector: c})
	colmetrics.RegisterMetricsServiceServer(s, metrics{Collector: c})
	served := make(chan error, 1)
	go func() { served <- s.Serve(counting{l, c}) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c
}

// counting is a listener that counts connections.
type counting struct {
	net.Listener
	c *Collector
}

func (l counting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.c.change(func() { l.c.conns++ })
	}
	return conn, err
}

func (c *Collector) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

type traces struct {
	coltrace.UnimplementedTraceServiceServer
	*Collector
}

// Export implements the service for traces.
func (c traces) Export(_ context.Context, req *coltrace.ExportTraceServiceRequest) (*coltrace.ExportTraceServiceResponse, error) {
	c.change(func() {
		for _, of := range req.GetResourceSpans() {
			service := text(of.GetResource().GetAttributes(), "service.name")
			for _, scope := range of.GetScopeSpans() {
				for _, s := range scope.GetSpans() {
					c.spans = append(c.spans, Span{s, service})
				}
			}
		}
	})
	return &coltrace.ExportTraceServiceResponse{}, nil
}

type metrics struct {
	colmetrics.UnimplementedMetricsServiceServer
	*Collector
}

// Export implements the service for metrics.
func (c metrics) Export(_ context.Context, req *colmetrics.ExportMetricsServiceRequest) (*colmetrics.ExportMetricsServiceResponse, error) {
	c.change(func() {
		for _, of := range req.GetResourceMetrics() {
			for _, scope := range of.GetScopeMetrics() {
				for _, m := range scope.GetMetrics() {
					c.metrics[m.GetName()] = true
				}
			}
		}
	})
	return &colmetrics.ExportMetricsServiceResponse{}, nil
}

// Spans returns what was received.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// HasMetric reports whether a metric was received.
func (c *Collector) HasMetric(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.metrics[name]
}

// Connections returns how many connections were made.
func (c *Collector) Connections() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conns
}

// Until waits until enough holds, and returns the spans.
func (c *Collector) Until(t testing.TB, what string, enough func([]Span) bool) []Span {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		c.mu.Lock()
		spans, changed := slices.Clone(c.spans), c.changed
		c.mu.Unlock()
		if enough(spans) {
			return spans
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("%s: not received; there are\n%s", what, Tree(spans, nil))
		}
	}
}

// Trace returns the hexadecimal id of the trace of a span.
func (s Span) Trace() string { return hex.EncodeToString(s.GetTraceId()) }

// ID returns the hexadecimal id of a span.
func (s Span) ID() string { return hex.EncodeToString(s.GetSpanId()) }

// Parent returns the hexadecimal id of the parent of a span, "" if it has none.
func (s Span) Parent() string { return hex.EncodeToString(s.GetParentSpanId()) }

// Text returns an attribute of a span as text, "" without one.
func (s Span) Text(key string) string { return text(s.GetAttributes(), key) }

// Int returns an attribute that is an integer, 0 without one.
func (s Span) Int(key string) int64 { return find(s.GetAttributes(), key).GetIntValue() }

// Float returns an attribute that is a floating-point number, 0 without one.
func (s Span) Float(key string) float64 { return find(s.GetAttributes(), key).GetDoubleValue() }

// Bool returns an attribute that is a truth value, false without one.
func (s Span) Bool(key string) bool { return find(s.GetAttributes(), key).GetBoolValue() }

func text(of []*common.KeyValue, key string) string { return find(of, key).GetStringValue() }

func find(of []*common.KeyValue, key string) *common.AnyValue {
	for _, kv := range of {
		if kv.GetKey() == key {
			return kv.GetValue()
		}
	}
	return nil
}

// Tree prints spans as trees, one line for each span, indented below its parent. Siblings are in the order in which they
// began, and those that began at the same time in that of their names. A span whose parent is not among the spans
// begins a tree of its own, with a mark if it has a parent. detail adds to lines; it may be nil.
func Tree(spans []Span, detail func(Span) string) string {
	known, below := map[string]bool{}, map[string][]Span{}
	for _, s := range spans {
		known[s.Trace()+s.ID()] = true
	}
	for _, s := range spans {
		at := ""
		if known[s.Trace()+s.Parent()] {
			at = s.Trace() + s.Parent()
		}
		below[at] = append(below[at], s)
	}
	var b strings.Builder
	var write func(at, indent string)
	write = func(at, indent string) {
		list := below[at]
		slices.SortStableFunc(list, func(a, b Span) int {
			return cmp.Or(cmp.Compare(a.GetStartTimeUnixNano(), b.GetStartTimeUnixNano()), cmp.Compare(a.GetName(), b.GetName()))
		})
		for _, s := range list {
			mark := ""
			if at == "" && s.Parent() != "" {
				mark = "(parent is missing) "
			}
			more := ""
			if detail != nil {
				more = detail(s)
			}
			fmt.Fprintf(&b, "%s%s%s%s\n", indent, mark, s.GetName(), more)
			write(s.Trace()+s.ID(), indent+"  ")
		}
	}
	write("", "")
	return b.String()
}
