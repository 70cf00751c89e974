package server

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

// docsFiles are the page of the REST surface and what it needs: it loads nothing
// from elsewhere.
//
//go:embed docs/index.html docs/start.js docs/swagger-ui.css docs/swagger-ui-bundle.js
var docsFiles embed.FS

// docsTypes are the media types of those files.
var docsTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
}

// docsPolicy has the page load from this server alone.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'"

// openAPI is the description of the REST surface for people: each path once.
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
		"description": "A2A 1.0 over HTTP+JSON, and the Agent service. Each path of A2A is there below /{tenant} as well, " +
			"for the agent or team of that id; without, a send goes to the default one. Streams are server-sent events.",
	}
	doc["securityDefinitions"] = map[string]any{
		"bearer": map[string]any{"type": "apiKey", "in": "header", "name": "Authorization", "description": "Bearer KEY, where the server wants keys."},
	}
	doc["security"] = []any{map[string]any{"bearer": []any{}}}
	return json.Marshal(doc)
}

// serveOpenAPI answers with the description.
func (s *Server) serveOpenAPI(w http.ResponseWriter, _ *http.Request, _ map[string]string) {
	fromAnywhere(w.Header())
	s.asset(w, "application/json", s.openAPI)
}

// serveDocs answers with the page, or with a file of it.
func (s *Server) serveDocs(w http.ResponseWriter, r *http.Request, params map[string]string) {
	name := params["file"]
	if name == "" {
		name = "index.html"
	}
	b, err := docsFiles.ReadFile("docs/" + name)
	if err != nil {
		s.failWith(w, r, wire.NotServed("there is no file of this name"), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Security-Policy", docsPolicy)
	s.asset(w, docsTypes[path.Ext(name)], b)
}

// asset answers with what is the same for everybody until the program changes.
func (s *Server) asset(w http.ResponseWriter, media string, b []byte) {
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Cache-Control", "public, max-age=300")
	h.Set("X-Content-Type-Options", "nosniff")
	soon(w)
	_, _ = w.Write(b) // the caller may have left
}
