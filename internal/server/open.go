package server

import (
	"io/fs"
	"net/http"
	"regexp"

	"github.com/agentteams/team-server/web"
)

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

// openCard matches the paths of public cards: of the default agent, and of one agent.
var openCard = regexp.MustCompile(`^(/[^/]+)?(` + regexp.QuoteMeta(cardPath) + `|` + regexp.QuoteMeta(oldCardPath) + `)$`)

// isOpen reports whether a request needs no key. Open requests only read, so their
// bodies are ignored; OPTIONS is for pages that read a card.
func (s *Server) isOpen(r *http.Request) bool {
	card := openCard.MatchString(singleTenant(r.URL).Path)
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return card || s.open[r.URL.Path]
	case http.MethodOptions:
		return card || r.URL.Path == jwksPath
	}
	return false
}
