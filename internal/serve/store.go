package serve

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/server"
)

// inMemory reports whether a store is lost when the process ends.
func inMemory(url string) bool { return url == store.MemoryURL }

// openStore opens the store of a server with the settings of its configuration. lease is the value
// of the flag; 0 means the default.
func openStore(ctx context.Context, url string, def *config.Config, lease time.Duration, meter metric.Meter, log *zap.Logger) (server.Store, error) {
	c := server.StoreConfig{Settings: def.Settings(), Lease: lease, EncryptionKeys: def.EncryptionKeys(), Meter: meter, Log: log.Named("store")}
	if url == def.StoreURL() {
		c.Listen = def.StoreListen()
	}
	return server.OpenStore(ctx, url, c)
}
