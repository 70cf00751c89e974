package httpapi

import (
	"net/http"

	"github.com/agentteams/team-server/internal/server/mcpdoor"
)

// mcpRoutes returns the routes of MCP, if it is served.
func (c *Config) mcpRoutes() []route {
	if c.MCP == nil {
		return nil
	}
	return []route{
		{"POST", mcpdoor.Path, c.MCP.Serve},
		{"GET", mcpdoor.MetadataPath, c.MCP.ServeMetadata},
		{"OPTIONS", mcpdoor.MetadataPath, preflight},
	}
}

// isMCP reports whether a request is one of MCP.
func (c *Config) isMCP(r *http.Request) bool {
	return c.MCP != nil && r.URL.Path == mcpdoor.Path
}

// openPaths returns the paths that need no key.
func openPaths(config Config) map[string]bool {
	open := openFiles()
	if config.MCP != nil {
		open[mcpdoor.MetadataPath] = true
	}
	return open
}
