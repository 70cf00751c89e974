package bearer_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agentteams/team-server/internal/bearer"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

// endpoint is a token endpoint that counts its tokens.
func endpoint(t *testing.T, expires int) (string, *atomic.Int32) {
	t.Helper()
	var n atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, key, ok := r.BasicAuth()
		w.Header().Set("Content-Type", "application/json")
		if !ok {
			id, key = r.FormValue("client_id"), r.FormValue("client_secret")
		}
		if id != "team" || key != "canary-secret" || r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "read write" || r.FormValue("audience") != "api" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprintf(w, `{"error":"invalid_client","error_description":"%s"}`, key)
			return
		}
		_, _ = fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"Bearer","expires_in":%d}`, n.Add(1), expires)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/token", &n
}

func source(url, key string) *bearer.Source {
	return bearer.New(bearer.Config{TokenURL: url, ClientID: "team", ClientSecret: secret.New(key), Scopes: []string{"read", "write"}, Params: map[string]string{"audience": "api"}})
}

// TestToken: a token is kept while it is valid, asked for again when it expires, and again when a server has refused it.
func TestToken(t *testing.T) {
	for _, c := range []struct{ expires, tokens int32 }{{3600, 1}, {1, 3}, {0, 1}} {
		url, n := endpoint(t, int(c.expires))
		s := source(url, "canary-secret")
		for range 3 {
			if token, err := s.Token(t.Context()); err != nil || !strings.HasPrefix(token.Reveal(), "token-") {
				t.Fatal(token, err)
			}
		}
		if n.Load() != c.tokens {
			t.Errorf("%d tokens of %d s, want %d", n.Load(), c.expires, c.tokens)
		}
	}
	url, n := endpoint(t, 3600)
	s := source(url, "canary-secret")
	first, _ := s.Token(t.Context())
	s.Discard(secret.New("another"))
	s.Discard(first)
	if second, err := s.Token(t.Context()); err != nil || second.Equal(first) || n.Load() != 2 {
		t.Errorf("%v, %d tokens", err, n.Load())
	}
}

// TestTokenRefused: errors name the endpoint and the keys, and no secret.
func TestTokenRefused(t *testing.T) {
	url, _ := endpoint(t, 3600)
	_, err := source(url, "canary-wrong").Token(t.Context())
	if e := agent.AsError(err); !e.Fresh || e.Retry || !strings.Contains(e.Message, "refused the client (HTTP 401 invalid_client); check client_id") || strings.Contains(err.Error(), "canary") {
		t.Errorf("%v", err)
	}
	_, err = source("http://127.0.0.1:1/token?key=canary", "canary-secret").Token(t.Context())
	if e := agent.AsError(err); !e.Fresh || !e.Retry || !strings.Contains(e.Message, "the token endpoint 127.0.0.1:1 gave no token") || strings.Contains(err.Error(), "canary") {
		t.Errorf("%v", err)
	}
}
