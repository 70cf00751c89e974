package server_test

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// A client over HTTP+JSON that ignores the tenant of an interface reaches the agent of the
// card. So does one that adds the tenant to the URL once more, and one that has a card from
// the time when the tenant was not part of the URL.
func TestA_10_TenantInTheURL(t *testing.T) {
	named := func(id string) *agent.Func {
		return say(id, func(context.Context, string) (string, error) { return "said by " + id, nil })
	}
	target := serve(t, server.Config{Settings: &teamv1.ServerSettings{DefaultAgent: "upper"}}, upper(), named("far"))
	target.Version = "-"
	card, _, err := rig.PublicCard(t.Context(), target, "far")
	if err != nil {
		t.Fatal(err)
	}
	at := "" // the URL of the interface, and nothing else of it
	for _, offered := range card.GetSupportedInterfaces() {
		if offered.GetProtocolBinding() == "HTTP+JSON" {
			at = offered.GetUrl()
		}
		if tenant := offered.GetTenant(); (tenant != "") != (offered.GetProtocolBinding() == "GRPC") {
			t.Errorf("the interface at %s has the tenant %q; only an address that does not name the agent needs one", offered.GetUrl(), tenant)
		}
	}
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	for i, base := range []string{u.Path, "/far", "/far/far"} {
		for path, body := range map[string]string{
			"/message:send":    `{"message":{"messageId":"m` + strconv.Itoa(i) + `","role":"ROLE_USER","parts":[{"text":"hi"}]}}`,
			"/v1/message:send": `{"message":{"messageId":"old` + strconv.Itoa(i) + `","role":"ROLE_USER","content":[{"text":"hi"}]},"configuration":{"blocking":true}}`,
		} {
			if answer := post(t, target, base+path, body); !strings.Contains(answer, "said by far") {
				t.Errorf("POST %s does not reach far: %s", base+path, answer)
			}
		}
		for path, want := range map[string]string{"/tasks": `"tasks":[`, "/v1/tasks": `"tasks":[`, cardPath: `"name":"far"`} {
			resp, body := ask(t, target, http.MethodGet, base+path, nil)
			if resp.Status != http.StatusOK || !strings.Contains(strings.ReplaceAll(string(body), ": ", ":"), want) {
				t.Errorf("GET %s: %d %s", base+path, resp.Status, body)
			}
		}
	}
}

// post sends JSON and returns what is answered.
func post(t *testing.T, target rig.Target, path, body string) string {
	t.Helper()
	resp, err := target.Do(t.Context(), http.MethodPost, path, []byte(body), map[string]string{"Content-Type": "application/json"})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := resp.Body()
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}
