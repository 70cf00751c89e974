package server_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/server"
)

// TestR_003_28_Page: the Team Monitor is served without a key, and names nothing that is
// not served here. That it works is tested in a browser, in tests/page.
func TestR_003_28_Page(t *testing.T) {
	// monitored has a monitor that is never called.
	monitored := struct{ server.Monitor }{}
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
