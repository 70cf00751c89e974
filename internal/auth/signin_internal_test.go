package auth

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// documentIssuer is an issuer that serves a discovery document, and no keys. change changes the document.
func documentIssuer(t *testing.T, change map[string]any) *httptest.Server {
	t.Helper()
	var f *httptest.Server
	f = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		document := map[string]any{
			"issuer": f.URL, "jwks_uri": f.URL + "/keys", "authorization_endpoint": f.URL + "/authorize?tenant=a", "token_endpoint": f.URL + "/token",
			"code_challenge_methods_supported": []string{"plain", "S256"}, "authorization_response_iss_parameter_supported": true,
		}
		maps.Copy(document, change)
		if err := json.NewEncoder(w).Encode(document); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(f.Close)
	return f
}

// TestT_14_EndpointsOfAnIssuer: the page is not sent to endpoints without https, or with what a browser or a
// policy reads in another way. What is wrong is logged once.
func TestT_14_EndpointsOfAnIssuer(t *testing.T) {
	for name, c := range map[string]struct {
		change map[string]any
		want   string
	}{
		"good":                   {nil, ""},
		"no methods":             {map[string]any{"code_challenge_methods_supported": nil}, ""},
		"https elsewhere":        {map[string]any{"token_endpoint": "https://login.example:8443/token"}, ""},
		"no S256":                {map[string]any{"code_challenge_methods_supported": []string{"plain"}}, "code_challenge_methods_supported of the discovery document does not contain S256"},
		"no token endpoint":      {map[string]any{"token_endpoint": nil}, "token_endpoint of the discovery document is not an https address"},
		"http elsewhere":         {map[string]any{"token_endpoint": "http://login.example/token"}, "token_endpoint of the discovery document is not an https address"},
		"a script":               {map[string]any{"authorization_endpoint": "javascript:alert(1)"}, "authorization_endpoint of the discovery document is not an https address"},
		"a directive":            {map[string]any{"token_endpoint": "https://a;script-src/token"}, "token_endpoint of the discovery document is not an https address"},
		"a wildcard":             {map[string]any{"token_endpoint": "https://*/token"}, "token_endpoint of the discovery document is not an https address"},
		"an IPv6 address":        {map[string]any{"token_endpoint": "https://[2001:db8::1]/token"}, "token_endpoint of the discovery document is not an https address"},
		"a user":                 {map[string]any{"authorization_endpoint": "https://id.example@evil.example/"}, "authorization_endpoint of the discovery document is not an https address"},
		"a fragment":             {map[string]any{"authorization_endpoint": "https://id.example/#a"}, "authorization_endpoint of the discovery document is not an https address"},
		"another issuer":         {map[string]any{"issuer": "https://evil.example"}, `the discovery document is of the issuer "https://evil.example"`},
		"a text for the methods": {map[string]any{"code_challenge_methods_supported": "S256"}, "the discovery document is not the expected JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			log, logged := observer.New(zap.WarnLevel)
			k, err := newIssuerKeys(Issuer{Name: "corp", URL: documentIssuer(t, c.change).URL, Page: &PageClient{ClientID: "monitor"}}, zap.New(log))
			if err != nil {
				t.Fatal(err)
			}
			defer k.http.CloseIdleConnections()
			for range 2 {
				_, _ = k.fetch(t.Context()) // the keys are not what is tested
			}
			lines := logged.All()
			switch known := k.endpoints.Load() != nil; {
			case c.want == "":
				if !known || len(lines) > 0 {
					t.Errorf("known: %t, logged: %v", known, lines)
				}
			case known || len(lines) != 1 || !strings.Contains(lines[0].ContextMap()["error"].(string), c.want):
				t.Errorf("known: %t, logged: %v", known, lines)
			}
		})
	}
}

// TestT_10_SignIns: issuers with a page are listed in the order of the configuration, without endpoints until the
// issuer answers. A document that cannot be read does not stop the keys of an issuer that has jwks_url.
func TestT_10_SignIns(t *testing.T) {
	var up atomic.Bool
	key := newPair(t, "one", "ES256")
	keys := newIssuer(t)
	keys.lists(key.public())
	late := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		url := "http://" + r.Host
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": url, "authorization_endpoint": url + "/authorize", "token_endpoint": url + "/token"})
	}))
	defer late.Close()
	s := tokensOf(t, 5*time.Millisecond,
		&teamv1.JwtIssuer{Name: "two", Issuer: late.URL, JwksUrl: keys.URL + "/keys", Audiences: []string{"team"}, Page: &teamv1.JwtPage{ClientId: "m", Scopes: []string{"a", "b"}, Audience: "x", Resource: "https://y"}},
		&teamv1.JwtIssuer{Name: "hidden", Issuer: keys.URL, Audiences: []string{"team"}},
	)
	want := SignIn{Name: "two", Issuer: late.URL, ClientID: "m", Scopes: []string{"a", "b"}, Audience: "x", Resource: "https://y"}
	if diff := cmp.Diff([]SignIn{want}, s.SignIns()); diff != "" {
		t.Error(diff)
	}
	if _, err := ask(s, key.sign(t, changed(good(keys), "iss", late.URL), nil)); err != nil {
		t.Errorf("a token, while the discovery document cannot be read: %v", err)
	}
	up.Store(true)
	await(t, "the endpoints are not known", func() bool { return s.SignIns()[0].TokenEndpoint != "" })
	want.AuthorizationEndpoint, want.TokenEndpoint = late.URL+"/authorize", late.URL+"/token"
	if got := s.SignIns()[0]; cmp.Diff(want, got) != "" || got.Origin() != late.URL {
		t.Error(cmp.Diff(want, got), got.Origin())
	}
	up.Store(false)
	if n := keys.requests.Load(); s.SignIns()[0].TokenEndpoint != "" {
		await(t, "the keys are not fetched again", func() bool { return keys.requests.Load() > n+4 })
	}
	if got := s.SignIns()[0].TokenEndpoint; got != want.TokenEndpoint {
		t.Errorf("the endpoint is %q after the issuer has failed", got)
	}
	if _, err := New(Config{Accept: &teamv1.AuthConfig{Jwt: []*teamv1.JwtIssuer{{Name: "corp", Issuer: "https://id.example", Audiences: []string{"a"}, Page: &teamv1.JwtPage{}}}}}); err == nil || !strings.Contains(err.Error(), "the client id of the page is required") {
		t.Errorf("a page without a client id: %v", err)
	}
}
