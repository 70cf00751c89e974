package httpapi

import (
	"net/http"
	"net/url"
	"testing"
)

// TestP11_PathsThatStopWork: requests that stop work are known by their paths, and no others are.
func TestP11_PathsThatStopWork(t *testing.T) {
	for path, want := range map[string]bool{
		"/tasks/x:cancel": true, "/desk/tasks/x:cancel": true, "/v1/tasks/x:cancel": true, "/desk/v1/tasks/x:cancel": true,
		"/team/v1/agents/x:cancel": true, "/team/v1/collaborations/x:stop": true, "/team/v1/halts": true, "/team/v1/halts:resume": true,
		"/team/v1/teams/two/board/items/x:cancel": false, "/nope:cancel": false, "/message:send": false, "/x:stop": false, "/a/b/c/tasks/x:cancel": false,
	} {
		if got := stopsAt(&http.Request{Method: http.MethodPost, URL: &url.URL{Path: path}}); got != want {
			t.Errorf("%s stops work: %t", path, got)
		}
	}
	if stopsAt(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/team/v1/halts"}}) {
		t.Error("a list of halts stops work")
	}
}
