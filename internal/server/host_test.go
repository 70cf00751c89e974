package server_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/server/service"
	"github.com/agentteams/team-server/internal/settings"
)

// TestA_21_T_45_ForeignPages: without keys, requests from a page of another site are rejected,
// even if its name resolves to a loopback address (T45).
func TestA_21_T_45_ForeignPages(t *testing.T) {
	p := &probe{
		get:  task,
		card: func(context.Context, string) (*a2av1.AgentCard, error) { return &a2av1.AgentCard{Name: "team"}, nil },
	}
	plain := server.Config{Handler: p, Monitor: struct{ service.Monitor }{}}
	named, keyed, proxied := plain, plain, plain
	named.Settings = settings.Of(&teamv1.ServerSettings{PublicUrl: "https://team.example/teams"})
	keyed.Auth = byKeys(key("ann", "", "secret"))
	proxied.Settings = settings.Of(&teamv1.ServerSettings{TrustedProxies: []string{"127.0.0.0/8"}})
	alone := start(t, plain).HTTP
	public := start(t, named).HTTP
	keys := start(t, keyed).HTTP
	behind := start(t, proxied).HTTP
	const card = "/.well-known/agent-card.json"
	for name, c := range map[string]struct {
		at, path, host, origin string
		want                   int
	}{
		"as it is listened on":                  {alone, "/tasks/t1", "", "", 200},
		"localhost":                             {alone, "/tasks/t1", "localhost:8080", "http://localhost:8080", 200},
		"a name below localhost":                {alone, "/tasks/t1", "Team.LocalHost.:80", "https://ui.localhost", 200},
		"a loopback address of IPv6":            {alone, "/tasks/t1", "[::1]:8080", "http://[::1]:8080", 200},
		"any loopback address":                  {alone, "/tasks/t1", "127.8.9.1", "http://127.0.0.1:3000", 200},
		"a name that was bound to loopback":     {alone, "/tasks/t1", "evil.example:8080", "", 403},
		"and its origin":                        {alone, "/tasks/t1", "evil.example:8080", "http://evil.example:8080", 403},
		"a name that begins like localhost":     {alone, "/tasks/t1", "localhost.evil.example", "", 403},
		"a name that begins like an address":    {alone, "/tasks/t1", "127.0.0.1.evil.example", "", 403},
		"a name that ends like localhost":       {alone, "/tasks/t1", "notlocalhost", "", 403},
		"another address":                       {alone, "/tasks/t1", "192.0.2.1:8080", "", 403},
		"the page of the monitor":               {alone, "/", "evil.example", "", 403},
		"a card":                                {alone, card, "evil.example", "", 403},
		"an origin elsewhere":                   {alone, "/tasks/t1", "", "https://evil.example", 403},
		"an origin that is hidden":              {alone, "/tasks/t1", "", "null", 403},
		"an invalid origin":                     {alone, "/tasks/t1", "", "://", 403},
		"a card from an origin elsewhere":       {alone, card, "", "https://ui.example", 200},
		"the public URL":                        {public, "/tasks/t1", "team.example", "https://team.example", 200},
		"the public URL with a port":            {public, "/tasks/t1", "TEAM.example:443", "", 200},
		"loopback beside a public URL":          {public, "/tasks/t1", "", "https://team.example", 200},
		"not the public URL":                    {public, "/tasks/t1", "www.team.example", "", 403},
		"behind a proxy on this machine":        {behind, "/tasks/t1", "team.example", "https://team.example", 403},
		"and its page":                          {behind, "/tasks/t1", "", "https://team.example", 403},
		"and from a page of this machine":       {behind, "/tasks/t1", "", "http://localhost:3000", 200},
		"with keys it is they who let in":       {keys, "/", "team.example", "https://team.example", 200},
		"and without one of them it is refused": {keys, "/tasks/t1", "team.example", "", 401},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := hosted(t, c.at+c.path, c.host, c.origin)
			if resp.StatusCode != c.want {
				t.Errorf("%s, want %d: %s", resp.Status, c.want, body)
			}
			if c.want == 403 && (!strings.Contains(body, "PERMISSION_DENIED") || !strings.Contains(body, "server.public_url")) {
				t.Error(body)
			}
		})
	}
}

// TestA_21_NoHost: a request without a Host is rejected on a server without keys.
func TestA_21_NoHost(t *testing.T) {
	alone := start(t, server.Config{Handler: &probe{get: task}})
	for _, text := range []string{"GET /tasks/t1 HTTP/1.0\r\n\r\n", "GET /tasks/t1 HTTP/1.1\r\nHost:\r\n\r\n"} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(alone.HTTP, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%q: %s", text, resp.Status)
		}
	}
}

// byCertificate accepts callers without a token, as by their certificates.
type byCertificate struct{ auth.Authenticator }

func (byCertificate) Authenticate(auth.Request) (identity.Caller, error) {
	return identity.Caller{Account: "acme", Principal: "ann", Permissions: identity.EveryPermission}, nil
}

// TestA_21_PagesAndCertificates: a browser adds its certificate to requests of every page, so those of other
// sites are rejected. Tokens are not added, so requests with a token are not.
func TestA_21_PagesAndCertificates(t *testing.T) {
	config := server.Config{Handler: &probe{get: task}, Auth: byCertificate{}, Settings: settings.Of(&teamv1.ServerSettings{PublicUrl: "https://team.example", Cors: &teamv1.CorsSettings{Origins: []string{"https://ui.example", "*"}}})}
	at := start(t, config).HTTP + "/tasks/t1"
	for name, c := range map[string]struct {
		header map[string]string
		want   int
	}{
		"no page":                     {nil, 200},
		"a page of the server":        {map[string]string{"Origin": "https://team.example", "Sec-Fetch-Site": "same-origin"}, 200},
		"a page that is listed":       {map[string]string{"Origin": "https://ui.example", "Sec-Fetch-Site": "cross-site"}, 200},
		"a page elsewhere":            {map[string]string{"Origin": "https://evil.example"}, 403},
		"a page that is hidden":       {map[string]string{"Origin": "null"}, 403},
		"a link elsewhere":            {map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		"an address that was entered": {map[string]string{"Sec-Fetch-Site": "none"}, 200},
		"a page with a token":         {map[string]string{"Origin": "https://evil.example", "Authorization": "Bearer x"}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			for k, v := range c.header {
				req.Header.Set(k, v)
			}
			if resp, body := do(t, req); resp.StatusCode != c.want {
				t.Errorf("%s, want %d: %s", resp.Status, c.want, body)
			}
		})
	}
}

func hosted(t *testing.T, url, host, origin string) (*http.Response, string) {
	t.Helper()
	header := http.Header{}
	if origin != "" {
		header.Set("Origin", origin)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Host, req.Header = host, header
	return do(t, req)
}
