package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/cardsign"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/remote"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

const cardPath = "/.well-known/agent-card.json"

func cardKey(t *testing.T, id string) server.CardKey {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return server.CardKey{ID: id, Private: private}
}

// ask makes an HTTP request and returns the answer with its body.
func ask(t *testing.T, target rig.Target, method, path string, headers map[string]string) (*rig.Answer, []byte) {
	t.Helper()
	resp, err := target.Do(t.Context(), method, path, nil, headers)
	if err != nil {
		t.Fatal(err)
	}
	body, err := resp.Body()
	if err != nil {
		t.Fatal(err)
	}
	return resp, body
}

func trusted(t *testing.T, target rig.Target) *cardsign.Trust {
	t.Helper()
	_, keys := ask(t, target, http.MethodGet, "/.well-known/jwks.json", nil)
	trust, err := cardsign.NewTrust(keys)
	if err != nil {
		t.Fatal(err)
	}
	return trust
}

// A card of a server with API keys, over a real socket, and its keys.
func TestA_10_SignedCard(t *testing.T) {
	keys := []*teamv1.ApiKey{rig.Key("acme", "ann")}
	target := serve(t, server.Config{CardKeys: []server.CardKey{cardKey(t, "one"), cardKey(t, "two")}, Settings: &teamv1.ServerSettings{Auth: rig.Auth(keys...), PublicUrl: "https://team.example"}}, upper())
	card, _, err := rig.PublicCard(t.Context(), target, "upper")
	if err != nil {
		t.Fatal(err)
	}
	if _, kid, err := trusted(t, target).Verify(card); err != nil || kid != "one" {
		t.Errorf("%q %v", kid, err)
	}
	for _, s := range card.GetSignatures() {
		header, err := base64.RawURLEncoding.DecodeString(s.GetProtected())
		if err != nil || !strings.Contains(string(header), `"jku":"https://team.example/.well-known/jwks.json"`) {
			t.Errorf("%s %v", header, err)
		}
	}
	t.Run("the extended card too", func(t *testing.T) {
		extended := serve(t, server.Config{CardKeys: []server.CardKey{cardKey(t, "x")}, ExtendedCards: func(string) []a2a.ExtendedCard {
			return []a2a.ExtendedCard{{Description: "More."}}
		}}, upper())
		for _, c := range rig.Clients(t, extended) {
			card, err := c.Card(t.Context(), &a2av1.GetExtendedAgentCardRequest{Tenant: "upper"})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := trusted(t, extended).Verify(card); err != nil || card.GetDescription() != "More." {
				t.Errorf("%s: %v", c.Binding(), err)
			}
		}
	})
	// A card without A2A-Version is what the SDKs' resolvers ask for.
	plain := target
	plain.Version = "-"
	_, body := ask(t, plain, http.MethodGet, "/upper"+cardPath, map[string]string{"Accept": "*/*"})
	unversioned, err := a2av03.ReadCard(body)
	if err != nil || !strings.Contains(string(body), `"protocolVersion":"0.3.0"`) {
		t.Fatalf("%v %s", err, body)
	}
	unversioned.SupportedInterfaces = slices.DeleteFunc(unversioned.GetSupportedInterfaces(), func(i *a2av1.AgentInterface) bool { return i.GetProtocolVersion() != "1.0" })
	if _, kid, err := trusted(t, target).Verify(unversioned); err != nil || kid != "one" {
		t.Errorf("a card that serves both versions: %q %v", kid, err)
	}
	for _, path := range []string{"/upper" + cardPath, "/.well-known/jwks.json"} {
		t.Run(path, func(t *testing.T) { cached(t, target, path) })
	}
	t.Run("no keys to show without signatures", func(t *testing.T) {
		if resp, _ := ask(t, serve(t, server.Config{}, upper()), http.MethodGet, "/.well-known/jwks.json", nil); resp.Status != http.StatusNotFound {
			t.Error(resp.Status)
		}
	})
}

// cached looks at what caches and browsers go by.
func cached(t *testing.T, target rig.Target, path string) {
	t.Helper()
	first, body := ask(t, target, http.MethodGet, path, nil)
	h := first.Header
	tag := h.Get("ETag")
	if first.Status != 200 || h.Get("Cache-Control") != "public, max-age=60" || tag == "" || h.Get("Last-Modified") == "" || h.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("%d %v", first.Status, h)
	}
	again, same := ask(t, target, http.MethodGet, path, nil)
	if again.Header.Get("ETag") != tag || string(same) != string(body) {
		t.Error("a card that did not change has another tag, or other bytes")
	}
	for name, value := range map[string]string{"If-None-Match": tag, "If-Modified-Since": h.Get("Last-Modified")} {
		resp, body := ask(t, target, http.MethodGet, path, map[string]string{name: value})
		if resp.Status != http.StatusNotModified || len(body) != 0 || resp.Header.Get("ETag") != tag || resp.Header.Get("Cache-Control") == "" {
			t.Errorf("%s: %d %v", name, resp.Status, resp.Header)
		}
	}
	if resp, _ := ask(t, target, http.MethodGet, path, map[string]string{"If-None-Match": `"other"`, "If-Modified-Since": h.Get("Last-Modified")}); resp.Status != 200 {
		t.Errorf("a time counted more than a tag: %d", resp.Status)
	}
	if resp, body := ask(t, target, http.MethodHead, path, nil); resp.Status != 200 || len(body) != 0 || resp.Header.Get("ETag") != tag {
		t.Errorf("HEAD: %d %v", resp.Status, resp.Header)
	}
	resp, _ := ask(t, target, http.MethodOptions, path, map[string]string{"Origin": "https://app.example", "Access-Control-Request-Method": "GET"})
	if resp.Status != http.StatusNoContent || resp.Header.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(resp.Header.Get("Access-Control-Allow-Methods"), "HEAD") ||
		!strings.Contains(resp.Header.Get("Access-Control-Allow-Headers"), "A2A-Version") {
		t.Errorf("OPTIONS: %d %v", resp.Status, resp.Header)
	}
}

// Where cards are reached: what a trusted proxy says, of a call that it passed on.
func TestA_10_CardsBehindAProxy(t *testing.T) {
	loopback := []string{"127.0.0.0/8"}
	behind := serve(t, server.Config{Settings: &teamv1.ServerSettings{TrustedProxies: loopback}}, upper())
	alone := serve(t, server.Config{Settings: &teamv1.ServerSettings{TrustedProxies: []string{"10.0.0.0/8"}}}, upper())
	public := serve(t, server.Config{Settings: &teamv1.ServerSettings{TrustedProxies: loopback, PublicUrl: "https://public.example"}}, upper())
	all := map[string]string{"X-Forwarded-Proto": "https", "X-Forwarded-Host": "team.example", "X-Forwarded-Prefix": "/teams/"}
	for name, c := range map[string]struct {
		target  rig.Target
		headers map[string]string
		want    string
	}{
		"nothing said":           {behind, nil, behind.HTTP},
		"all said":               {behind, all, "https://team.example/teams"},
		"the host alone":         {behind, map[string]string{"X-Forwarded-Host": "team.example:8443"}, "http://team.example:8443"},
		"the scheme alone":       {behind, map[string]string{"X-Forwarded-Proto": "https"}, strings.Replace(behind.HTTP, "http", "https", 1)},
		"the nearest one counts": {behind, map[string]string{"X-Forwarded-Host": "evil.example, team.example", "X-Forwarded-Proto": "https"}, "https://team.example"},
		"no host":                {behind, map[string]string{"X-Forwarded-Host": "a.example/x?y="}, behind.HTTP},
		"no scheme":              {behind, map[string]string{"X-Forwarded-Proto": "javascript"}, behind.HTTP},
		"no path":                {behind, map[string]string{"X-Forwarded-Prefix": "//evil.example"}, behind.HTTP},
		"not from a proxy":       {alone, all, alone.HTTP},
		"the file says where":    {public, all, "https://public.example"},
	} {
		t.Run(name, func(t *testing.T) {
			at := c.target
			at.Headers = c.headers
			card, resp, err := rig.PublicCard(t.Context(), at, "upper")
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range card.GetSupportedInterfaces() {
				if want := map[string]string{"GRPC": at.GRPC, "HTTP+JSON": c.want + "/upper", "JSONRPC": c.want + "/upper/rpc"}[i.GetProtocolBinding()]; i.GetUrl() != want {
					t.Errorf("%s at %s, want %s", i.GetProtocolBinding(), i.GetUrl(), want)
				}
			}
			varies := strings.Contains(strings.Join(resp.Header.Values("Vary"), ","), "X-Forwarded-Host")
			if varies != (name != "the file says where") {
				t.Errorf("Vary %q", resp.Header.Values("Vary"))
			}
		})
	}
	plain, _ := ask(t, behind, http.MethodGet, "/upper"+cardPath, nil)
	there, _ := ask(t, behind, http.MethodGet, "/upper"+cardPath, all)
	if plain.Header.Get("ETag") == there.Header.Get("ETag") {
		t.Error("two variants have one tag")
	}
}

// An extended card for each identity, and its three errors, on every binding.
func TestA_10_T_12_ExtendedCard(t *testing.T) {
	target := serve(t, server.Config{
		ExtendedCards: func(id string) []a2a.ExtendedCard {
			if id != "upper" {
				return nil
			}
			return []a2a.ExtendedCard{
				{For: []string{"acme/ann"}, Description: "For ann.", Skills: []*teamv1.Skill{{Id: "whisper"}, {Id: "talk", Name: "Talk louder"}}},
				{For: []string{"acme"}, Skills: []*teamv1.Skill{{Id: "shout"}}},
			}
		},
		Settings: rig.Keys(rig.Key("acme", "ann"), rig.Key("acme", "bob"), rig.Key("other", "eve")),
	}, upper(), gated(nil))
	for id, want := range map[string]bool{"upper": true, "gated": false} {
		card, _, err := rig.PublicCard(t.Context(), target, id)
		if err != nil || card.GetCapabilities().GetExtendedAgentCard() != want || card.GetDescription() == "For ann." || len(card.GetSkills()) != 1 {
			t.Errorf("the public card of %s: %v %v", id, card, err)
		}
	}
	skills := func(card *a2av1.AgentCard) (ids []string) {
		for _, s := range card.GetSkills() {
			ids = append(ids, s.GetId()+": "+s.GetName())
		}
		return ids
	}
	for name, c := range map[string]struct {
		caller rig.Target
		agent  string
		want   []string
		reason string
	}{
		"ann's own":      {target.As("acme", "ann"), "upper", []string{"talk: Talk louder", "whisper: whisper"}, ""},
		"the account's":  {target.As("acme", "bob"), "upper", []string{"talk: Talk", "shout: shout"}, ""},
		"capability off": {target.As("acme", "ann"), "gated", nil, "UNSUPPORTED_OPERATION"},
		"on, but none":   {target.As("other", "eve"), "upper", nil, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"},
		"no identity":    {target, "upper", nil, "UNAUTHENTICATED"},
		"without a key":  {target, "gated", nil, "UNAUTHENTICATED"},
		"unknown agent":  {target.As("acme", "ann"), "none", nil, "AGENT_NOT_FOUND"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, client := range rig.Clients(t, c.caller) {
				card, err := client.Card(t.Context(), &a2av1.GetExtendedAgentCardRequest{Tenant: c.agent})
				if c.reason != "" {
					if f := rig.Fault(err); f == nil || f.Reason != c.reason {
						t.Errorf("%s: %v", client.Binding(), f)
					}
					continue
				}
				if diff := cmp.Diff(c.want, skills(card)); err != nil || diff != "" {
					t.Errorf("%s: %v %s", client.Binding(), err, diff)
				}
			}
		})
	}
	resp, _ := ask(t, target.As("acme", "ann"), http.MethodGet, "/upper/extendedAgentCard", nil)
	if c := resp.Header.Get("Cache-Control"); !slices.Contains(strings.Split(c, ", "), "private") || !strings.Contains(resp.Header.Get("Vary"), "Authorization") {
		t.Errorf("shared caches may keep it: %v", resp.Header)
	}
}

// TestA_10_RemoteCardIsVerified: a remote agent is not called unless a trusted key has
// signed its card.
func TestA_10_RemoteCardIsVerified(t *testing.T) {
	signed := serve(t, server.Config{CardKeys: []server.CardKey{cardKey(t, "one")}}, upper())
	foreign := serve(t, server.Config{CardKeys: []server.CardKey{cardKey(t, "one")}}, upper())
	unsigned := serve(t, server.Config{}, upper())
	for name, c := range map[string]struct {
		at   rig.Target
		want string
	}{
		"signed":            {signed, ""},
		"by a foreign key":  {foreign, `trusted key "one" does not match`},
		"not signed at all": {unsigned, "is not signed"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := remote.NewA2A(remote.A2AConfig{ID: "far", Card: c.at.HTTP + "/upper", Verifier: trusted(t, signed)})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = a.Close() }()
			info, err := a.Info(t.Context())
			if c.want == "" && (err != nil || info.GetCapabilities()[0] != "talk") {
				t.Errorf("%v %v", info, err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if _, err := a.HealthCheck(t.Context()); (err == nil) != (c.want == "") {
				t.Errorf("health: %v", err)
			}
		})
	}
}
