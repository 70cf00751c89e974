package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/server"
)

// TestA_26_OpenAPI: the REST surface is described, for programs and for people, and
// the page loads nothing from elsewhere.
func TestA_26_OpenAPI(t *testing.T) {
	target := start(t, server.Config{Handler: &probe{}, Auth: byKeys(key("ann", "", "secret")), Version: "v9"})
	fetch := func(t *testing.T, path string) (*http.Response, string) {
		t.Helper()
		resp, err := http.Get(target.HTTP + path) //nolint:noctx // of a test
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(b)
	}
	get := func(t *testing.T, path string) (*http.Response, string) {
		t.Helper()
		resp, body := fetch(t, path)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %s", path, resp.Status, body)
		}
		return resp, body
	}
	t.Run("A-26 the description has each path once, and opens without a key", func(t *testing.T) {
		resp, body := get(t, "/openapi.json")
		var doc struct {
			Info  struct{ Version string }
			Paths map[string]map[string]any
		}
		if err := json.Unmarshal([]byte(body), &doc); err != nil || resp.Header.Get("Content-Type") != "application/json" {
			t.Fatal(err, resp.Header)
		}
		for _, path := range []string{"/message:send", "/message:stream", "/tasks/{id}:subscribe", "/tasks/{taskId}/pushNotificationConfigs/{id}", "/tasks/{id}/parts/{digest}", "/team/v1/agents/{agentId}:process"} {
			if doc.Paths[path] == nil {
				t.Errorf("%s is not there", path)
			}
		}
		for path := range doc.Paths {
			if strings.HasPrefix(path, "/{tenant}") {
				t.Errorf("%s is there twice", path)
			}
		}
		if doc.Info.Version != "v9" {
			t.Error(doc.Info)
		}
	})
	t.Run("A-26 the page and all that it names come from here", func(t *testing.T) {
		resp, page := get(t, "/docs")
		if policy := resp.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") {
			t.Error(policy)
		}
		named := regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(page, -1)
		if len(named) != 3 {
			t.Error(named)
		}
		for _, m := range named {
			if _, body := get(t, "/"+m[1]); body == "" {
				t.Errorf("%s is empty", m[1])
			}
		}
		if resp, _ := fetch(t, "/docs/../server.go"); resp.StatusCode == http.StatusOK {
			t.Error("a file that is not part of the page was served")
		}
		if resp, _ := fetch(t, "/docs/nothing.js"); resp.StatusCode != http.StatusUnauthorized { // as of any path that is not open
			t.Error(resp.Status)
		}
	})
}
