package serve

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/metrics/scrape"
)

// metricsListener serves the metrics of a server. A nil *metricsListener stands for a server without metrics.
type metricsListener struct{ *scrape.Server }

// listenMetrics listens on the address for metrics; it returns nil if there is none.
func listenMetrics(ctx context.Context, settings *teamv1.ServerSettings, log *zap.Logger) (*metricsListener, error) {
	address := settings.GetMetrics()
	if address == "" {
		return nil, nil //nolint:nilnil // no metrics
	}
	if err := checkMetrics(settings); err != nil {
		return nil, fmt.Errorf("server.metrics: %w", err)
	}
	l, err := listenTCP(ctx, address)
	if err != nil {
		return nil, cannotListen("Set server.metrics to 127.0.0.1:0", address, err)
	}
	s, err := scrape.New(l, log.Named("metrics"))
	if err != nil {
		return nil, err
	}
	return &metricsListener{s}, nil
}

// meter returns the meter, nil without metrics.
func (m *metricsListener) meter() metric.Meter {
	if m == nil {
		return nil
	}
	return m.Meter()
}

// address returns the address of the listener, Off without metrics.
func (m *metricsListener) address() string {
	if m == nil {
		return Off
	}
	return m.Addr()
}

// serve serves metrics until ctx ends. A failure is only logged: the server works without metrics.
func (m *metricsListener) serve(ctx context.Context, log *zap.Logger) {
	if m == nil {
		return
	}
	log.Info("serving metrics", zap.String("address", "http://"+m.Addr()+scrape.Path))
	if err := m.Serve(ctx); err != nil {
		log.Error("metrics are not served any more; restart the server to get them back", zap.Error(err))
	}
}

// close closes the listener if it was not served.
func (m *metricsListener) close() error {
	if m == nil {
		return nil
	}
	return m.Close()
}

// inFile reports whether the configuration file that is served defines an agent or team.
func (l *Live) inFile(id string) bool {
	def := l.Definition()
	defined := def.Server.GetTeams()[id] != nil || def.Server.GetAgents()[id] != nil
	return defined && def.Addition(id) == ""
}
