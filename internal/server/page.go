package server

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"

	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/web"
)

// pagePolicy has the Team Monitor load from this server alone, and be shown in no
// other page.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

// pageTypes are the media types of its files.
var pageTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

// pageRoutes are those of the Team Monitor, where there is a monitor to show. The page
// holds nothing of anybody: what it shows it asks the monitor service for.
func (s *Server) pageRoutes() []route {
	if s.config.Monitor == nil {
		return nil
	}
	return []route{{"GET", "/", s.servePage}, {"GET", "/assets/{file}", s.servePage}}
}

// servePage answers with the page, or with a file of it. Their names stay the same from
// version to version: a browser asks each time whether it has the right one.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request, params map[string]string) {
	name := "index.html"
	if file, ok := params["file"]; ok {
		name = path.Join("assets", path.Base(file))
	}
	b, err := fs.ReadFile(web.Files(), name)
	if err != nil {
		s.failWith(w, r, wire.NotServed("there is no file of this name"), http.StatusNotFound)
		return
	}
	sum := sha256.Sum256(b)
	h := w.Header()
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Type", pageTypes[path.Ext(name)])
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", `"`+hex.EncodeToString(sum[:16])+`"`)
	soon(w)
	s.serveContent(w, r, b)
}
