package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/web"
)

// signInPath is the path of the issuers with which users of the page sign in.
const signInPath = "/team/v1/monitor/sign-in"

// pagesConfig configures Pages.
type pagesConfig struct {
	// Monitor says that the Team Monitor is served.
	Monitor bool
	// SignIns returns the issuers with which users of the Team Monitor sign in; nil means none.
	SignIns func() []auth.SignIn
	// Ready returns why the server should receive no calls.
	Ready func() error
	// Version is the version of the program.
	Version string
	// Fail answers with an error.
	Fail func(w http.ResponseWriter, r *http.Request, st *status.Status, httpStatus int)
}

// pages serves what is no call: the Team Monitor, the description of the REST API, and whether the server is alive and ready.
type pages struct {
	config pagesConfig
	// openAPI is the description of the REST API, in JSON.
	openAPI []byte
}

// newPages returns the pages.
func newPages(config pagesConfig) (*pages, error) {
	described, err := openAPI(config.Version)
	return &pages{config, described}, err
}

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

// routes returns the routes. They need no key. The Team Monitor
// is public because it contains no data: it calls the monitor service with the key of
// its user.
func (s *pages) routes() []route {
	all := []route{
		{"GET", "/openapi.json", s.serveOpenAPI},
		{"GET", "/docs", s.serveDocs},
		{"GET", "/docs/{file}", s.serveDocs},
		{"GET", "/healthz", s.serveHealthz},
		{"GET", "/readyz", s.serveReadyz},
	}
	if s.config.Monitor {
		all = append(all, route{"GET", "/", s.servePage}, route{"GET", "/assets/{file}", s.servePage}, route{"GET", signInPath, s.serveSignIn})
	}
	return all
}

// signIns returns the issuers with which users of the page sign in.
func (s *pages) signIns() []auth.SignIn {
	if s.config.SignIns == nil {
		return nil
	}
	return s.config.SignIns()
}

// serveSignIn serves what the page needs to sign in with issuers. It is public: the page needs it before
// it has a token, and all of it is also in the address of the issuer that the page opens.
func (s *pages) serveSignIn(w http.ResponseWriter, r *http.Request, _ map[string]string) {
	list := struct {
		Issuers []auth.SignIn `json:"issuers"`
	}{append([]auth.SignIn{}, s.signIns()...)}
	b, err := json.Marshal(list)
	if err != nil {
		s.config.Fail(w, r, wire.Status(err), http.StatusInternalServerError)
		return
	}
	write(w, wire.TypeJSON, "no-store", b)
}

// servePage serves the page and its files. Their names do not change between versions of
// the program, so browsers must revalidate them each time.
func (s *pages) servePage(w http.ResponseWriter, r *http.Request, params map[string]string) {
	name := "index.html"
	if file, ok := params["file"]; ok {
		name = path.Join("assets", path.Base(file))
	}
	b, err := fs.ReadFile(web.Files(), name)
	if err != nil {
		s.config.Fail(w, r, wire.NotServed("there is no file with this name"), http.StatusNotFound)
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
	call.LimitWrite(w)
	serveContent(w, r, b, s.config.Fail)
}

// openFiles returns the paths, besides those of cards, that need no key: the health
// endpoints, the two pages with their files, the issuers with which users of the Team Monitor
// sign in, the API description, and the public keys of cards.
func openFiles() map[string]bool {
	open := map[string]bool{
		"/": true, "/healthz": true, "/readyz": true, "/openapi.json": true, "/docs": true, jwksPath: true, signInPath: true,
	}
	for below, files := range map[string]fs.FS{"/assets/": sub(web.Files(), "assets"), "/docs/": sub(docsFiles, "docs")} {
		names, err := fs.Glob(files, "*")
		if err != nil {
			panic(err) // the pattern is valid
		}
		for _, name := range names {
			open[below+name] = true
		}
	}
	return open
}

// sub returns a folder of embedded files. It panics if the folder does not exist.
func sub(files fs.FS, folder string) fs.FS {
	below, err := fs.Sub(files, folder)
	if err != nil {
		panic(err) // the folder is embedded
	}
	return below
}
