package httpapi

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/agentteams/team-server/api"
	"github.com/agentteams/team-server/internal/wire"
)

// docsFiles holds the documentation page of the REST API with its files. It loads nothing
// from other servers.
//
//go:embed docs/index.html docs/start.js docs/swagger-ui.css docs/swagger-ui-bundle.js
var docsFiles embed.FS

// docsTypes maps the extensions of those files to media types.
var docsTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
}

// docsPolicy is the Content-Security-Policy of the page, which loads from this server only.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'"

// openAPI returns the description of the REST API for people. It lists each path once,
// without the variant that begins with a tenant.
func openAPI(version string) ([]byte, error) {
	var doc map[string]any
	if err := json.Unmarshal(api.OpenAPI, &doc); err != nil {
		return nil, fmt.Errorf("reading the OpenAPI description: %w", err)
	}
	paths, _ := doc["paths"].(map[string]any)
	for p := range paths {
		if strings.HasPrefix(p, "/{tenant}/") {
			delete(paths, p)
		}
	}
	doc["info"] = map[string]any{
		"title": "team-server", "version": version,
		"description": "A2A 1.0 over HTTP+JSON, and the Agent service. Each A2A path also exists below /{tenant}, " +
			"for the agent or team with that id; a send without it goes to the default agent. Streams are server-sent events.",
	}
	doc["securityDefinitions"] = map[string]any{
		"bearer": map[string]any{"type": "apiKey", "in": "header", "name": "Authorization", "description": "Bearer KEY, if the server requires API keys."},
	}
	doc["security"] = []any{map[string]any{"bearer": []any{}}}
	return json.Marshal(doc)
}

// serveOpenAPI serves the description of the REST API.
func (s *pages) serveOpenAPI(w http.ResponseWriter, _ *http.Request, _ map[string]string) {
	allowAllOrigins(w.Header())
	s.asset(w, "application/json", s.openAPI)
}

// serveDocs serves the documentation page and its files.
func (s *pages) serveDocs(w http.ResponseWriter, r *http.Request, params map[string]string) {
	name := params["file"]
	if name == "" {
		name = "index.html"
	}
	b, err := docsFiles.ReadFile("docs/" + name)
	if err != nil {
		s.config.Fail(w, r, wire.NotServed("there is no file with this name"), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Security-Policy", docsPolicy)
	s.asset(w, docsTypes[path.Ext(name)], b)
}

// asset writes a file that is part of the program, is public, and may be cached for five
// minutes.
func (s *pages) asset(w http.ResponseWriter, media string, b []byte) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	write(w, media, "public, max-age=300", b)
}
