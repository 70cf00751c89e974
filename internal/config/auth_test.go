package config_test

import (
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/config"
)

// TestT_11_ValuesThatLetInTooMany: values of auth that would let in callers whom the file does not mean
// are faults.
func TestT_11_ValuesThatLetInTooMany(t *testing.T) {
	const sum = "d0c04f4b1951e4aeaaec8223ed2039e542f3aae805a6fa7f6d794e5afff5d272"
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for name, c := range map[string]struct{ auth, want string }{
		"a day that does not exist": {`api_keys: [{name: a, sha256: ` + sum + `, expires: "2026-02-30T00:00:00Z"}]`, "is a time that does not exist"},
		"no permissions":            {`api_keys: [{name: a, sha256: ` + sum + `, permissions: []}]`, `"permissions" is empty`},
		"no time":                   {`api_keys: [{name: a, sha256: ` + sum + `, expires: ""}]`, `"expires" is empty`},
		"an empty key":              {`api_keys: [{name: a, sha256: ` + empty + `}]`, "sha256 is that of an empty key"},
		"a key of two callers":      {`api_keys: [{name: a, sha256: ` + sum + `}, {name: b, sha256: ` + strings.ToUpper(sum) + `}]`, "sha256 is that of api_keys[0] too"},
		"no algorithms":             {`jwt: [{name: i, issuer: "https://id.example", audiences: [a], algorithms: []}]`, `"algorithms" is empty`},
	} {
		_, err := config.Loader{}.Parse("team.yaml", []byte("version: v1\nagents: {a: {scripted: {steps: [{echo: true}]}}}\nserver: {auth: {"+c.auth+"}}\n"))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "team.yaml:3:") {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	_, err := config.Loader{}.Parse("team.yaml", []byte("version: v1\nagents: {a: {scripted: {steps: [{echo: true}]}}}\nserver: {auth: {api_keys: [{name: a, sha256: "+sum+", expires: \"2096-02-29T00:00:00Z\"}]}}\n"))
	if err != nil {
		t.Error(err)
	}
}

// TestT_10_PageOfAnIssuer: what the page cannot send to an issuer is a fault at its key.
func TestT_10_PageOfAnIssuer(t *testing.T) {
	for page, want := range map[string]string{
		`{}`: "page needs the client_id", `{client_id: ""}`: `"client_id" is empty`, `{client_id: "a\nb"}`: "page needs the client_id",
		`{client_id: a, scopes: []}`: `"scopes" is empty`, `{client_id: a, scopes: ["openid email"]}`: "scopes are up to 32 words",
		`{client_id: a, audience: "ü"}`:              "audience must be 1 to 512 printable ASCII characters",
		`{client_id: a, resource: team}`:             "resource must be an absolute URI without a fragment",
		`{client_id: a, resource: "https://team#a"}`: "resource must be an absolute URI without a fragment",
		`{client_id: a, client_secret: b}`:           "unknown key",
	} {
		file := "version: v1\nagents: {a: {scripted: {steps: [{echo: true}]}}}\nserver: {auth: {jwt: [{name: i, issuer: \"https://id.example\", audiences: [a],\n  page: " + page + "}]}}\n"
		_, err := config.Loader{}.Parse("team.yaml", []byte(file))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "team.yaml:4:") {
			t.Errorf("%s: %v, want %s", page, err, want)
		}
	}
}
