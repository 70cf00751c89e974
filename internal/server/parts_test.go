package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/server/reduce"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2aerror"
)

// parted is a handler with a task of one part.
type parted struct {
	*probe
	part *a2av1.Part
}

func (p parted) Part(_ context.Context, _, id string, is func(*a2av1.Part) bool) (*a2av1.Part, error) {
	if !is(p.part) {
		return nil, a2aerror.TaskNotFound(id)
	}
	return p.part, nil
}

// TestA_05_PartsInRanges: the URL of a part serves ranges as RFC 9110 says, and refuses
// them with an error like all others.
func TestA_05_PartsInRanges(t *testing.T) {
	const content = "0123456789"
	part := &a2av1.Part{Content: &a2av1.Part_Text{Text: content}, Filename: "digits.txt"}
	target := start(t, server.Config{Handler: parted{&probe{}, part}})
	url := target.HTTP + "/tasks/t1/parts/" + reduce.PartDigest(part)
	tag := `"` + reduce.PartDigest(part) + `"`
	for _, c := range []struct {
		name, method   string
		ranges, header map[string]string
		status         int
		body           string
	}{
		{"whole", "GET", nil, map[string]string{"ETag": tag, "Content-Length": "10", "Content-Type": "text/plain; charset=utf-8", "Content-Disposition": "attachment; filename=digits.txt"}, 200, content},
		{"a range", "GET", map[string]string{"Range": "bytes=2-4"}, map[string]string{"ETag": tag, "Content-Range": "bytes 2-4/10"}, 206, "234"},
		{"the unit in other letters", "GET", map[string]string{"Range": "Bytes=-2"}, map[string]string{"Content-Range": "bytes 8-9/10"}, 206, "89"},
		{"an unknown unit", "GET", map[string]string{"Range": "lines=1-2"}, nil, 200, content},
		{"no unit", "GET", map[string]string{"Range": "1-2"}, nil, 200, content},
		{"this version", "GET", map[string]string{"Range": "bytes=2-4", "If-Range": tag}, nil, 206, "234"},
		{"another version", "GET", map[string]string{"Range": "bytes=2-4", "If-Range": `"other"`}, nil, 200, content},
		{"a weak version", "GET", map[string]string{"Range": "bytes=2-4", "If-Range": "W/" + tag}, nil, 200, content},
		{"behind the end, of another version", "GET", map[string]string{"Range": "bytes=20-", "If-Range": `"other"`}, nil, 200, content},
		{"known already", "GET", map[string]string{"If-None-Match": tag}, nil, 304, ""},
		{"HEAD", "HEAD", nil, map[string]string{"ETag": tag, "Content-Length": "10", "Accept-Ranges": "bytes"}, 200, ""},
		{"HEAD has no ranges", "HEAD", map[string]string{"Range": "bytes=2-4"}, map[string]string{"Content-Length": "10", "Content-Range": ""}, 200, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, body := exchange(t, c.method, url, "", c.ranges)
			if resp.StatusCode != c.status || body != c.body {
				t.Errorf("%d %q, want %d %q", resp.StatusCode, body, c.status, c.body)
			}
			for name, want := range c.header {
				if got := resp.Header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
		})
	}
	for _, ranges := range []string{"bytes=20-", "bytes=4-2", "bytes=x"} {
		resp, body := request(t, http.MethodGet, url, "", map[string]string{"Range": ranges, "Accept": "application/json"})
		h := resp.Header
		if resp.StatusCode != http.StatusRequestedRangeNotSatisfiable || violation(body) != "Range" || h.Get("Content-Type") != wire.TypeJSON ||
			ranges == "bytes=20-" && h.Get("Content-Range") != "bytes */10" || h.Get("ETag") != "" || strings.HasPrefix(h.Get("Content-Disposition"), "attachment") {
			t.Errorf("%s: %d %v %v", ranges, resp.StatusCode, h, body)
		}
	}
	if resp, body := request(t, http.MethodGet, target.HTTP+"/tasks/t1/parts/none", "", map[string]string{"Range": "bytes=0-1"}); resp.StatusCode != http.StatusNotFound {
		t.Errorf("%d %v", resp.StatusCode, body)
	}
}
