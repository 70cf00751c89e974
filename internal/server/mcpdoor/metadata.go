package mcpdoor

import (
	"encoding/json"
	"net/http"

	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/wire"
)

// issuersOf returns the URLs of the issuers whose tokens are accepted.
func issuersOf(in *call.Inbound) (issuers []string) {
	for _, i := range in.Settings.GetAuth().GetJwt() {
		issuers = append(issuers, i.GetIssuer())
	}
	return issuers
}

// Challenge sets the header of an answer with status 401 that says where the metadata is, if tokens are accepted.
func (*Door) Challenge(h http.Header, r *http.Request, status int) {
	in := call.InboundOf(r.Context())
	if status == http.StatusUnauthorized && in.Settings != nil && len(issuersOf(in)) > 0 {
		h.Set("WWW-Authenticate", `Bearer realm="team-server", resource_metadata="`+in.BaseURL()+MetadataPath+`"`)
	}
}

// ServeMetadata serves the metadata of the door as a resource of OAuth (RFC 9728): who issues tokens for it.
func (*Door) ServeMetadata(w http.ResponseWriter, r *http.Request, _ map[string]string) {
	in := call.InboundOf(r.Context())
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Cache-Control", "no-cache")
	issuers := issuersOf(in)
	if len(issuers) == 0 {
		http.NotFound(w, r)
		return
	}
	h.Set("Content-Type", wire.TypeJSON)
	_ = json.NewEncoder(w).Encode(map[string]any{ // the caller may have disconnected
		"resource": in.BaseURL() + Path, "authorization_servers": issuers, "bearer_methods_supported": []string{"header"},
	})
}
