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

// pagePolicy is the Content-Security-Policy of the Team Monitor: it loads from this server
// only, and no other page may frame it.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

// pageTypes maps the extensions of the page's files to media types.
var pageTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

// pageRoutes returns the routes of the Team Monitor, if there is a monitor service. The
// page is public because it contains no data: it calls the monitor service with the key of
// its user.
func (s *Server) pageRoutes() []route {
	if s.config.Monitor == nil {
		return nil
	}
	return []route{{"GET", "/", s.servePage}, {"GET", "/assets/{file}", s.servePage}}
}

// servePage serves the page and its files. Their names do not change between versions of
// the program, so browsers must revalidate them each time.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request, params map[string]string) {
	name := "index.html"
	if file, ok := params["file"]; ok {
		name = path.Join("assets", path.Base(file))
	}
	b, err := fs.ReadFile(web.Files(), name)
	if err != nil {
		s.failWith(w, r, wire.NotServed("there is no file with this name"), http.StatusNotFound)
		return
	}
	sum := sha256.Sum256(b)
	h := w.Header()
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Type", pageTypes[path.Ext(name)])
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", `"`+hex.EncodeToString(sum[:16])+`"`)
	limitWrite(w)
	s.serveContent(w, r, b)
}
