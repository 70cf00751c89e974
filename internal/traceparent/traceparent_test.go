package traceparent_test

import (
	"net/http"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/agentteams/team-server/internal/traceparent"
)

// TestForms: what is sent is what is read, and what is not a trace context is none. The examples are those
// of the W3C Trace Context.
func TestForms(t *testing.T) {
	for value, want := range map[string]string{
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01":       "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00":       "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03":       "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-later": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01":       "",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01":       "",
		"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01":       "",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01, x":    "",
		"": "", "x": "",
	} {
		if got := traceparent.Format(traceparent.Parse(value)); got != want {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
	h := http.Header{}
	traceparent.Set(t.Context(), h)
	if len(h) > 0 {
		t.Errorf("without a span: %v", h)
	}
	const value = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	traceparent.Set(trace.ContextWithSpanContext(t.Context(), traceparent.Parse(value)), h)
	if len(h) != 1 || h.Get(traceparent.Key) != value {
		t.Errorf("headers %v", h)
	}
}
