package a2aclient

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// TestRawShowsIDsAsTheyCame has events without an id of their own: none is shown.
func TestRawShowsIDsAsTheyCame(t *testing.T) {
	message := `{"message":{"messageId":"r","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, id := range []string{"", "id: 7\n", "", "id: 8\n"} {
			_, _ = w.Write([]byte(id + "data: " + message + "\n\n"))
		}
	}))
	defer s.Close()
	var raw bytes.Buffer
	c := newREST(newWeb(Config{Raw: &raw}, V1), s.URL)
	defer func() { _ = c.close() }()
	for _, err := range c.stream(t.Context(), &a2av1.SendMessageRequest{}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for line := range strings.Lines(raw.String()) {
		if before, _, found := strings.Cut(line, " data: "); found {
			got = append(got, before)
		}
	}
	if want := "<|< id: 7|<|< id: 8"; strings.Join(got, "|") != want {
		t.Errorf("shown is %s, not %s", strings.Join(got, "|"), want)
	}
}
