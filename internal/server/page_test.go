package server_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/server/service"
)

// TestR_003_28_Page: the Team Monitor is served without a key, and names nothing that is
// not served here. That it works is tested in a browser, in tests/page.
func TestR_003_28_Page(t *testing.T) {
	// monitored has a monitor that is never called.
	monitored := struct{ service.Monitor }{}
	target := start(t, server.Config{Handler: &probe{}, Monitor: monitored, Auth: byKeys(key("ann", "", "secret"))})
	get := func(t *testing.T, path, etag string) (*http.Response, string) {
		t.Helper()
		return exchange(t, http.MethodGet, target.HTTP+path, "", map[string]string{"If-None-Match": etag})
	}
	t.Run("R-003-28 the page and all that it names come from here, without a key", func(t *testing.T) {
		_, page := get(t, "/", "")
		named := regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(page, -1)
		if len(named) != 3 {
			t.Error(named)
		}
		for _, path := range append(named, []string{"", "./"}) {
			resp, body := get(t, "/"+strings.TrimPrefix(path[1], "./"), "")
			if resp.StatusCode != http.StatusOK || body == "" || resp.Header.Get("Content-Type") == "" {
				t.Errorf("%s: %s %s", path[1], resp.Status, resp.Header)
			}
			if policy := resp.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'; script-src 'self'; style-src 'self';") ||
				!strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") {
				t.Errorf("%s: policy %q", path[1], policy)
			}
			again, _ := get(t, resp.Request.URL.Path, resp.Header.Get("ETag"))
			if again.StatusCode != http.StatusNotModified {
				t.Errorf("%s: asked for again: %s", path[1], again.Status)
			}
		}
		if strings.Contains(page, "<style") || regexp.MustCompile(`<script[^>]*>[^<]`).MatchString(page) || regexp.MustCompile(` (on\w+|style)=`).MatchString(page) {
			t.Errorf("the page contains inline scripts or styles:\n%s", page)
		}
	})
	t.Run("R-003-31 there are no issuers to sign in with", func(t *testing.T) {
		resp, body := get(t, "/team/v1/monitor/sign-in", "")
		page, _ := get(t, "/", "")
		if resp.StatusCode != http.StatusOK || body != `{"issuers":[]}` || !strings.Contains(policyOf(page), "; connect-src 'self';") {
			t.Errorf("%s %s, policy %q", resp.Status, body, policyOf(page))
		}
	})
	t.Run("R-003-28 nothing else does", func(t *testing.T) {
		for _, path := range []string{"/assets/nothing.js", "/assets/", "/assets/..%2findex.html", "/assets/..%2f..%2fembed.go", "/index.html"} {
			if resp, _ := get(t, path, ""); resp.StatusCode == http.StatusOK {
				t.Errorf("%s is served", path)
			}
		}
	})
	t.Run("R-003-28 there is no page without a monitor", func(t *testing.T) {
		without := start(t, server.Config{Handler: &probe{}})
		resp, err := http.Get(without.HTTP + "/assets/monitor.js") //nolint:noctx // of a test
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Error(resp.Status)
		}
	})
}

func policyOf(resp *http.Response) string { return resp.Header.Get("Content-Security-Policy") }

// TestR_003_31_SignInOfThePage: without a key the page learns the issuers to sign in with, and it may call the
// origins of their token endpoints and no others. A page that was cached with another policy is sent again.
func TestR_003_31_SignInOfThePage(t *testing.T) {
	monitored := struct{ service.Monitor }{}
	var known []auth.SignIn
	target := start(t, server.Config{
		Handler: &probe{}, Monitor: monitored, Auth: byKeys(key("ann", "", "secret")), SignIns: func() []auth.SignIn { return known },
	})
	page, _ := exchange(t, http.MethodGet, target.HTTP+"/", "", nil)
	known = []auth.SignIn{
		{Name: "one", Issuer: "https://id.example", AuthorizationEndpoint: "https://id.example/a", TokenEndpoint: "https://api.id.example:8443/t?x=1", ClientID: "m", Scopes: []string{"openid"}},
		{Name: "two", TokenEndpoint: "https://api.id.example:8443/other", ClientID: "m", Scopes: []string{"openid"}},
		{Name: "three", Issuer: "https://late.example", ClientID: "m", Scopes: []string{"openid"}, Audience: "team", NamesIssuer: true},
	}
	again, body := exchange(t, http.MethodGet, target.HTTP+"/", "", map[string]string{"If-None-Match": page.Header.Get("ETag")})
	if again.StatusCode != http.StatusOK || body == "" || !strings.Contains(policyOf(again), "; connect-src 'self' https://api.id.example:8443; form-action 'none';") {
		t.Errorf("%s, policy %q", again.Status, policyOf(again))
	}
	resp, body := exchange(t, http.MethodGet, target.HTTP+"/team/v1/monitor/sign-in", "", nil)
	const want = `{"name":"one","issuer":"https://id.example","authorizationEndpoint":"https://id.example/a","tokenEndpoint":"https://api.id.example:8443/t?x=1","clientId":"m","scopes":["openid"]}`
	if !strings.Contains(body, want) || !strings.Contains(body, `{"name":"three","issuer":"https://late.example","clientId":"m","scopes":["openid"],"audience":"team","namesIssuer":true}`) {
		t.Error(body)
	}
	if resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Content-Type") != "application/json" || resp.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Error(resp.Header)
	}
}
