package client

import (
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves one answer to everything.
func serve(t *testing.T, code int, body string) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestA_21_AddressesAreShownWithoutUsers: what is wrong with an address is told without
// the password in it.
func TestA_21_AddressesAreShownWithoutUsers(t *testing.T) {
	for _, address := range []string{
		"http://ann:hush@127.0.0.1:x", "ann:hush@127.0.0.1", "ftp://ann:hush@127.0.0.1/x", "http://ann:hu@sh@127.0.0.1:x",
		"grpc://ann:hush@127.0.0.1:9", "grpc://ann:hush@127.0.0.1:x/desk",
	} {
		_, err := NewTeam(address, "", nil)
		if !strings.Contains(text(err), "127.0.0.1") || strings.Contains(text(err), "hu") || strings.Contains(text(err), "sh@") {
			t.Errorf("a server at %s: %v", address, err)
		}
	}
}

// TestWhatIsNoTeamServer: who asks another web server for teams is told that it is
// one, unless it may be a proxy of a team-server.
func TestWhatIsNoTeamServer(t *testing.T) {
	const page, plain = "<html>hi</html>", `{"detail":"Not Found"}`
	for _, tt := range []struct {
		status int
		body   string
		want   string // else all of it
	}{
		{http.StatusNotFound, page, ""},
		{http.StatusNotFound, plain, ""},
		{http.StatusMethodNotAllowed, "", ""},
		{http.StatusNotImplemented, page, ""},
		{http.StatusOK, page, ""},
		{http.StatusOK, "[]", ""},
		{http.StatusBadGateway, page, "UNAVAILABLE: Bad Gateway"},
		{http.StatusUnauthorized, page, "UNAUTHENTICATED: Unauthorized"},
		{http.StatusNotFound, `{"error":{"code":404,"status":"NOT_FOUND","message":"there is no team \"x\"","details":[` +
			`{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TEAM_NOT_FOUND","domain":"team-server"}]}}`, `TEAM_NOT_FOUND: there is no team "x"`},
	} {
		base := serve(t, tt.status, tt.body)
		c, err := NewTeam(strings.Replace(base, "http://", "http://ann:hush@", 1), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		want := cmp.Or(tt.want, "the server at "+strings.Replace(base, "http://", "http://…@", 1)+" does not look like a team-server; "+
			"use the address after http= of a server's ready line, for example http://127.0.0.1:8080")
		if _, err := c.ListTeams(t.Context()); text(err) != want {
			t.Errorf("list, %d %s: %v", tt.status, tt.body, err)
		}
		if _, err := c.Collaboration(t.Context(), "x"); text(err) != want {
			t.Errorf("collaboration, %d %s: %v", tt.status, tt.body, err)
		}
		for _, err := range c.Process(t.Context(), &teamv1.ProcessRequest{AgentId: "x"}, 0) {
			if text(err) != want {
				t.Errorf("process, %d %s: %v", tt.status, tt.body, err)
			}
		}
	}
}
