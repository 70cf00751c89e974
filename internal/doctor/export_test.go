package doctor_test

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/agentteams/team-server/internal/testkit/collector"
	"github.com/agentteams/team-server/internal/testkit/testcerts"
)

// guarded is a collector with TLS that lets in who sends the header key: open.
func guarded(t *testing.T, certificate tls.Certificate) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&certificate)), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if md, _ := metadata.FromIncomingContext(stream.Context()); strings.Join(md.Get("key"), "") != "open" {
			return status.Error(codes.Unauthenticated, "hush")
		}
		return stream.SendMsg(nil) // an empty answer, which is one that accepts all
	}), grpc.ForceServerCodec(empty{}))
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "https://" + l.Addr().String()
}

// empty is a codec for messages without fields.
type empty struct{}

func (empty) Marshal(any) ([]byte, error)     { return nil, nil }
func (empty) Unmarshal(_ []byte, _ any) error { return nil }
func (empty) Name() string                    { return "proto" }

// TestExport: the variables of OpenTelemetry are checked as serve does, and the collector is asked to accept an export
// that is empty. A collector that does not is a warning.
func TestExport(t *testing.T) {
	up := collector.New(t)
	authority := testcerts.New(t, "authority")
	certPEM, keyPEM := authority.Issue(time.Now().Add(time.Hour), "127.0.0.1")
	certificate, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	secure, ca := guarded(t, certificate), testcerts.Write(t, t.TempDir(), "ca.pem", authority.PEM)
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	closed := "http://" + closedAddress(t)
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT="
	for _, c := range []struct {
		variables string
		code      int
		want      []string // none: no line is about exports
	}{
		{"", 0, nil},
		{endpoint + up.URL + " OTEL_METRICS_EXPORTER=otlp", 0, []string{
			"ok       export of spans: the collector at " + up.URL + " accepts them",
			"ok       export of metrics: the collector at " + up.URL + " accepts them",
		}},
		{endpoint + closed + " OTEL_METRICS_EXPORTER=otlp OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=" + up.URL, 0, []string{
			"warning  export of spans: the collector at " + closed + " cannot be reached: connection refused; start the collector, or correct",
			"ok       export of metrics: the collector at " + up.URL + " accepts them",
		}},
		{"OTEL_METRICS_EXPORTER=otlp OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=" + closed, 0, []string{
			"warning  export of metrics: the collector at " + closed + " cannot be reached: connection refused",
		}},
		{endpoint + "https://" + strings.TrimPrefix(up.URL, "http://"), 0, []string{"cannot be reached: it does not speak TLS"}},
		{endpoint + plain.URL, 0, []string{"warning  export of spans: the collector at " + plain.URL}},
		{endpoint + secure, 0, []string{"warning  export of spans: the collector at " + secure + " cannot be reached: its certificate is not trusted"}},
		{endpoint + secure + " OTEL_EXPORTER_OTLP_CERTIFICATE=" + ca, 0, []string{"warning  export of spans: the collector at " + secure + " does not accept them: Unauthenticated"}},
		{endpoint + secure + " OTEL_EXPORTER_OTLP_CERTIFICATE=" + ca + " OTEL_EXPORTER_OTLP_HEADERS=key=open", 0, []string{"ok       export of spans"}},
		{"OTEL_TRACES_EXPORTER=zipkin OTEL_EXPORTER_OTLP_ENDPOINT=127.0.0.1:14317", 1, []string{
			`failed   environment: the environment variable OTEL_TRACES_EXPORTER is "zipkin", which is not supported; use otlp or none, or unset it`,
			"failed   environment: the environment variable OTEL_EXPORTER_OTLP_ENDPOINT ",
		}},
	} {
		t.Run(c.variables, func(t *testing.T) {
			for _, v := range strings.Fields(c.variables) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			out, code := newSetup(t).run(false)
			if code != c.code || (strings.Contains(out, "export of ") || strings.Contains(out, "failed ")) != (len(c.want) > 0) || strings.Contains(out, "hush") {
				t.Errorf("exit code %d\n%s", code, out)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
		})
	}
}
