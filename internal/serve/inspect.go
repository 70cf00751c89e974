package serve

import (
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/pkg/server"
)

// Issuers returns the issuers of tokens of a configuration.
func Issuers(def *config.Config) []server.Issuer { return issuers(def) }

// TLSOf returns how the listeners of a configuration use TLS.
func TLSOf(def *config.Config) server.TLS { return tlsOf(def) }
