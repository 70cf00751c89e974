package serve

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/server"
)

// inMemory reports whether a store is lost when the process ends.
func inMemory(url string) bool { return url == store.MemoryURL }

// openStore opens the store of a server with the settings of its configuration. lease is the value
// of the flag; 0 means the default.
func openStore(ctx context.Context, url string, def *config.Config, lease time.Duration, meter metric.Meter, log *zap.Logger) (server.Store, error) {
	s := def.Server.GetServer()
	c := server.StoreConfig{Retention: s.GetRetention().AsDuration(), Lease: lease, EncryptionKeys: def.EncryptionKeys(), Meter: meter, Log: log.Named("store")}
	c.Deduplicate, _ = deduplicate(s)
	c.KeepConversations, c.KeepBoards, c.KeepAudit = s.GetKeep().GetConversations().AsDuration(), s.GetKeep().GetBoards().AsDuration(), s.GetKeep().GetAudit().AsDuration()
	if url == def.StoreURL() {
		c.Listen = def.StoreListen()
	}
	return server.OpenStore(ctx, url, c)
}

// deduplicate returns how long message ids are remembered, 0 for the default, and whether
// deduplication is off.
func deduplicate(s *teamv1.ServerSettings) (window time.Duration, off bool) {
	if s.GetDeduplicate() == "off" {
		return 0, true
	}
	window, _ = time.ParseDuration(s.GetDeduplicate()) // the file was checked
	return window, false
}
