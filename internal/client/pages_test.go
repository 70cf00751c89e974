package client

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestPagesThatDoNotEnd has a server whose page names itself as the next one: the lists end
// with an error.
func TestPagesThatDoNotEnd(t *testing.T) {
	var calls atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) > 20 {
			cancel()
		}
		_, _ = w.Write([]byte(`{"nextPageToken":"again"}`))
	}))
	defer s.Close()
	c, err := NewTeam(s.URL, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	errs := map[string]error{}
	_, errs["teams"] = c.ListTeams(ctx)
	_, errs["agents"] = c.ListAgents(ctx, "", "")
	_, errs["collaborations"] = c.Collaborations(ctx, "")
	for name, err := range errs {
		if !strings.Contains(text(err), `the same page token twice`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
