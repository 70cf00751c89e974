package httpapi

import (
	"net/http"
	"regexp"

	"github.com/agentteams/team-server/internal/server/mcpdoor"
)

// openCard matches the paths of public cards: of the default agent, and of one agent.
var openCard = regexp.MustCompile(`^(/[^/]+)?(` + regexp.QuoteMeta(cardPath) + `|` + regexp.QuoteMeta(oldCardPath) + `)$`)

// isOpen reports whether a request needs no key. Open requests only read, so their
// bodies are ignored; OPTIONS is for pages that read a card.
func (s *API) isOpen(r *http.Request) bool {
	card := openCard.MatchString(singleTenant(r.URL).Path)
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return card || s.open[r.URL.Path]
	case http.MethodOptions:
		return card || r.URL.Path == jwksPath || r.URL.Path == mcpdoor.MetadataPath && s.open[r.URL.Path]
	}
	return false
}
