package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/web"
)

// signInPath is the path of the issuers with which users of the page sign in.
const signInPath = "/team/v1/monitor/sign-in"

// pagePolicy returns the Content-Security-Policy of the Team Monitor: it loads from this server only,
// calls this server and the token endpoints of issuers, and no other page may frame it.
func pagePolicy(issuers []auth.SignIn) string {
	calls := []string{"'self'"}
	for _, i := range issuers {
		if origin := i.Origin(); origin != "" && !slices.Contains(calls, origin) {
			calls = append(calls, origin)
		}
	}
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src " + strings.Join(calls, " ") +
		"; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
}

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
	return []route{{"GET", "/", s.servePage}, {"GET", "/assets/{file}", s.servePage}, {"GET", signInPath, s.serveSignIn}}
}

// signIns returns the issuers with which users of the page sign in.
func (s *Server) signIns() []auth.SignIn {
	if s.config.SignIns == nil {
		return nil
	}
	return s.config.SignIns()
}

// serveSignIn serves what the page needs to sign in with issuers. It is public: the page needs it before
// it has a token, and all of it is also in the address of the issuer that the page opens.
func (s *Server) serveSignIn(w http.ResponseWriter, r *http.Request, _ map[string]string) {
	list := struct {
		Issuers []auth.SignIn `json:"issuers"`
	}{append([]auth.SignIn{}, s.signIns()...)}
	b, err := json.Marshal(list)
	if err != nil {
		s.fail(w, r, wire.Status(err))
		return
	}
	w.Header().Set("Content-Type", wire.TypeJSON)
	w.Header().Set("Cache-Control", "no-store")
	limitWrite(w)
	_, _ = w.Write(b) // the caller may have disconnected
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
	policy := pagePolicy(s.signIns())
	sum := sha256.Sum256(append([]byte(policy), b...)) // a cached page has the policy with which it was stored
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Type", pageTypes[path.Ext(name)])
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", `"`+hex.EncodeToString(sum[:16])+`"`)
	limitWrite(w)
	s.serveContent(w, r, b)
}
