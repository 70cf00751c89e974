package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/wire"
)

// cards records when the card of each agent last changed, for Last-Modified. The zero value
// is ready to use.
type cards struct {
	mu   sync.Mutex
	seen map[string]cardVersion // by tenant and base URL; guarded by mu
}

type cardVersion struct {
	tag   string
	since time.Time
}

// maxVariants is the maximum number of variants of cards in memory. A trusted proxy may
// name any number of base URLs.
const maxVariants = 4096

// version returns the entity tag of a variant of a card, and the time at which the variant
// got that tag.
func (c *cards) version(variant string, b []byte) cardVersion {
	tag := tagOf(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.seen[variant]; ok && v.tag == tag {
		return v
	}
	if c.seen == nil || len(c.seen) >= maxVariants {
		c.seen = map[string]cardVersion{}
	}
	c.seen[variant] = cardVersion{tag, time.Now().UTC()}
	return c.seen[variant]
}

func tagOf(b []byte) string {
	sum := sha256.Sum256(b)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// serveCard serves the card of an agent, whatever protocol version the request names. Public cards
// need no authentication, and pages of every origin may read them.
func (s *API) serveCard(w http.ResponseWriter, r *http.Request, params map[string]string) {
	in := *call.InboundOf(r.Context())
	in.Open, in.Version = true, nil
	req := &a2av1.GetExtendedAgentCardRequest{Tenant: params["tenant"]}
	public := false
	resp, err := s.chain.Unary(call.WithInbound(r.Context(), &in), "AgentCard", req, func(ctx context.Context, _ any) (card any, err error) {
		card, public, err = s.table.Handler.Card(ctx, req.GetTenant())
		return card, err
	})
	card, _ := resp.(*a2av1.AgentCard)
	h := w.Header()
	if public || err != nil {
		allowAllOrigins(h)
	}
	if err != nil {
		s.fail(w, r, wire.Status(err))
		return
	}
	b, form, err := s.cardBytes(r.Context(), card)
	if err != nil {
		s.fail(w, r, wire.Status(err))
		return
	}
	h.Set("Vary", "Accept, A2A-Version")
	if len(in.Settings.Proxies) > 0 && in.Settings.GetPublicUrl() == "" {
		h.Add("Vary", call.ForwardHeaders)
	}
	if !public {
		_ = setPrivate(r.Context(), w, nil) // always nil
		write(w, wire.TypeJSON, private, b)
		return
	}
	writeCached(w, r, s.cards.version(form+"/"+req.GetTenant()+" "+in.Base, b), b)
}

// writeCached writes a public answer that caches may keep for a minute, or status 304 if
// the client has it already.
func writeCached(w http.ResponseWriter, r *http.Request, v cardVersion, b []byte) {
	const shared = "public, max-age=60"
	h := w.Header()
	h.Set("ETag", v.tag)
	h.Set("Last-Modified", v.since.Format(http.TimeFormat))
	if unchanged(r, v) {
		h.Set("Cache-Control", shared)
		w.WriteHeader(http.StatusNotModified)
		return
	}
	write(w, wire.TypeJSON, shared, b)
}

const jwksPath = "/.well-known/jwks.json"

// serveJWKS serves the public keys of signed cards, if cards are signed.
func (s *API) serveJWKS(w http.ResponseWriter, r *http.Request, _ map[string]string) {
	allowAllOrigins(w.Header())
	signer := call.InboundOf(r.Context()).Settings.Signer
	if signer == nil {
		s.failWith(w, r, wire.NotServed("this server signs nothing: it has no server.signing"), http.StatusNotFound)
		return
	}
	keys := signer.JWKS()
	writeCached(w, r, s.cards.version(jwksPath, keys), keys)
}

// unchanged reports whether the client has this version already. If-None-Match takes
// precedence over If-Modified-Since.
func unchanged(r *http.Request, v cardVersion) bool {
	if tags := r.Header.Get("If-None-Match"); tags != "" {
		for tag := range strings.SplitSeq(tags, ",") {
			if tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/"); tag == v.tag || tag == "*" {
				return true
			}
		}
		return false
	}
	since, err := http.ParseTime(r.Header.Get("If-Modified-Since"))
	return err == nil && !v.since.Truncate(time.Second).After(since)
}

// allowAllOrigins lets pages of all origins read the response.
func allowAllOrigins(h http.Header) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "ETag, Last-Modified")
}

func preflight(w http.ResponseWriter, _ *http.Request, _ map[string]string) {
	h := w.Header()
	allowAllOrigins(h)
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
	h.Set("Access-Control-Allow-Headers", "A2A-Version, A2A-Extensions, Content-Type, If-None-Match, If-Modified-Since")
	h.Set("Access-Control-Max-Age", "86400")
	w.WriteHeader(http.StatusNoContent)
}
