package tasks

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/cli/console"
)

// TestList_Words: a search for words goes on behind pages that have fewer tasks than were asked for, and no further.
func TestList_Words(t *testing.T) {
	t.Parallel()
	pages := map[string]string{
		"":   `{"nextPageToken": "t1"}`,
		"t1": `{"tasks": [{"taskId": "one"}], "nextPageToken": "t2"}`,
		"t2": `{"tasks": [{"taskId": "two"}], "nextPageToken": "t3"}`,
	}
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		asked = append(asked, q.Get("pageToken")+" "+q.Get("pageSize"))
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, pages[q.Get("pageToken")])
	}))
	t.Cleanup(s.Close)
	for text, want := range map[string]string{"tides": " 2, t1 2, t2 1; one two; --page-token t3", "": " 2; ; --page-token t1"} {
		var out, talk strings.Builder
		asked = nil
		c := &Commands{Console: &console.Console{Out: &out, Talk: &talk}, Connection: &console.Connection{Server: s.URL}}
		if err := c.List(t.Context(), &Query{Text: text, Size: 2}); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for line := range strings.Lines(out.String()) {
			if f := strings.Fields(line); f[0] != "TASK" {
				ids = append(ids, f[0])
			}
		}
		_, next, _ := strings.Cut(strings.TrimSpace(talk.String()), "the next page: ")
		if got := strings.Join(asked, ", ") + "; " + strings.Join(ids, " ") + "; " + next; got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
