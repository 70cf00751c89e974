// Package scrape serves the metrics of a process to Prometheus, on a listener of its own.
package scrape

import (
	"context"
	"errors"
	"fmt"
	stdlog "log" //nolint:depguard // net/http takes no other logger
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.uber.org/zap"
)

// Path is where the metrics are served, and HealthPath where the process says that it works.
const (
	Path       = "/metrics"
	HealthPath = "/healthz"
)

const (
	// maxScrapes is how many requests are answered at the same time; others get 503.
	maxScrapes = 4
	// scrapeTimeout is the timeout of a request.
	scrapeTimeout = 10 * time.Second
)

// Server serves metrics. Call Serve once, or Close.
type Server struct {
	reader   sdkmetric.Reader
	listener net.Listener
	http     *http.Server
}

// New returns a server that listens, and answers when Serve is called. It closes the listener if it fails.
// On a loopback address it answers only requests whose Host is one, so that pages cannot read the metrics
// through a name that leads there.
func New(l net.Listener, log *zap.Logger) (*Server, error) {
	registry := prometheus.NewRegistry()
	reader, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo(),
		otelprometheus.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))
	if err == nil {
		err = errors.Join(registry.Register(collectors.NewGoCollector()), registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("metrics: %w", err), l.Close())
	}
	lines := &lineLog{log}
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: lines, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout,
	})
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, metrics)
	mux.HandleFunc("GET "+HealthPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	var handler http.Handler = mux
	if local(l.Addr().String()) {
		handler = onlyLocal(mux)
	}
	return &Server{
		reader:   reader,
		listener: l,
		http: &http.Server{
			Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 2 * scrapeTimeout,
			IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: stdlog.New(lines, "", 0),
		},
	}, nil
}

// Reader returns the reader of the metrics that are served. It belongs to a provider of meters, which the caller
// shuts down.
func (s *Server) Reader() sdkmetric.Reader { return s.reader }

// Addr returns the address on which the server listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Serve answers requests until ctx ends, which is not an error. It closes the listener.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.http.Close() }) // a scrape is repeated anyway
	defer stop()
	err := s.http.Serve(s.listener)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving metrics on %s: %w", s.Addr(), err)
}

// Close closes the listener of a server that does not serve. After Serve it does nothing.
func (s *Server) Close() error {
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// onlyLocal refuses requests whose Host is not a loopback address.
func onlyLocal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !local(r.Host) {
			http.Error(w, "metrics are served for loopback addresses only; use the host 127.0.0.1 or localhost", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// local reports whether a host, with or without a port, is a loopback address or localhost.
func local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// lineLog logs what net/http and promhttp report.
type lineLog struct{ log *zap.Logger }

// Println implements promhttp.Logger.
func (l *lineLog) Println(v ...any) {
	l.log.Warn("metrics cannot be read", zap.String("error", strings.TrimSpace(fmt.Sprintln(v...))))
}

// Write implements io.Writer for a log.Logger.
func (l *lineLog) Write(b []byte) (int, error) {
	l.log.Debug("net/http reports a failure on the listener of metrics", zap.String("report", strings.TrimSpace(string(b))))
	return len(b), nil
}
