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

// TestSecure has the addresses of gRPC interfaces: one that does not say whether
// it wants TLS is as the card was.
func TestSecure(t *testing.T) {
	for _, tt := range []struct {
		url, target, want string
		secure            bool
	}{
		{"a.example:443", "https://a.example/x", "a.example:443", true},
		{"a.example:443", "http://a.example/x", "a.example:443", false},
		{"https://a.example:443/", "http://a.example/x", "a.example:443", true},
		{"http://a.example:80", "https://a.example/x", "a.example:80", false},
		{"grpcs://a.example:443", "http://a.example/x", "a.example:443", true},
		{"grpc://a.example:80", "https://a.example/x", "a.example:80", false},
	} {
		if got, secure := grpcAddress(tt.url, tt.target); got != tt.want || secure != tt.secure {
			t.Errorf("%s by the card of %s: %s, %v", tt.url, tt.target, got, secure)
		}
	}
}
