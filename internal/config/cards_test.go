package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/source"
)

func pemKeys(t *testing.T) (private, public []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	private = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if der, err = x509.MarshalPKIXPublicKey(key.Public()); err != nil {
		t.Fatal(err)
	}
	return private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// TestA_10_KeysOfCards has the files that signing and trusted_keys name: what is
// wrong with one is said with its place, before anything is served.
func TestA_10_KeysOfCards(t *testing.T) {
	private, public := pemKeys(t)
	files := fstest.MapFS{"private.pem": {Data: private}, "public.pem": {Data: public}, "text.pem": {Data: []byte("hello")}, "oct.json": {Data: []byte(`{"kty":"oct","k":"c2VjcmV0"}`)}}
	const base = "version: v1\nagents:\n  far: {a2a: {card: \"https://far.example\", trusted_keys: [TRUST]}}\nserver: {signing: {keys: [{kid: one, file: KEY}]}}\n"
	for _, tt := range []struct{ key, trust, place, want string }{
		{"private.pem", "public.pem", "", ""},
		{"nowhere.pem", "public.pem", "team.yaml:4:44", `file "nowhere.pem": the file does not exist`},
		{"public.pem", "public.pem", "team.yaml:4:44", `file "public.pem" contains a public key; cards are signed with the private key`},
		{"text.pem", "public.pem", "team.yaml:4:44", `file "text.pem" contains no private key in PEM`},
		{"private.pem", "nowhere.pem", "team.yaml:3:59", `trusted_keys "nowhere.pem": the file does not exist`},
		{"private.pem", "private.pem", "team.yaml:3:59", `trusted_keys "private.pem" contains a private key; provide only the public key`},
		{"private.pem", "oct.json", "team.yaml:3:59", `trusted_keys "oct.json" contains a symmetric key, which could also be used to sign; provide a public key`},
	} {
		text := strings.NewReplacer("KEY", tt.key, "TRUST", tt.trust).Replace(base)
		c, err := Loader{Env: noEnv, Files: files}.Parse("team.yaml", []byte(text))
		var fs source.Faults
		if err != nil && !errors.As(err, &fs) {
			t.Fatal(err)
		}
		if tt.want != "" {
			if len(fs) != 1 || fs[0].Message != tt.want || fs[0].Place() != tt.place || fs[0].Hint == "" {
				t.Errorf("%s, %s: %v", tt.key, tt.trust, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if keys := c.Settings().GetSigning().GetKeys(); len(keys) != 1 || keys[0].GetKid() != "one" {
			t.Error(keys)
		}
		if trust, err := c.Trust(c.Server.GetAgents()["far"].GetA2A()); err != nil || trust == nil {
			t.Errorf("%v %v", trust, err)
		}
		if trust, err := c.Trust(&teamv1.A2AAgent{}); err != nil || trust != nil {
			t.Errorf("without trusted_keys: %v %v", trust, err)
		}
	}
}

// TestA_21_CORSSettings: origins are exact, and all of them may call only where there are keys.
func TestA_21_CORSSettings(t *testing.T) {
	key := "auth: {api_keys: [{name: ann, sha256: " + strings.Repeat("0", 64) + "}]}"
	many := strings.Repeat("https://a.example, ", 101)
	for settings, want := range map[string]string{
		`cors: {origins: [https://app.example, "http://localhost:5173", "http://[::1]:3000"], headers: [X-Trace-Id]}`: "",
		`cors: {origins: ["*"]}, ` + key:                         "",
		`cors: {origins: ["*"]}`:                                 "cors allows every origin, which requires API keys",
		`cors: {}`:                                               "cors names no origins",
		`cors: {headers: [X-Trace-Id]}`:                          "cors names no origins",
		`cors: {origins: [https://app.example, "*"]}, ` + key:    "origins must be http or https addresses without a path",
		`cors: {origins: ["https://app.example:443"]}`:           "an origin has no default port",
		`cors: {origins: ["http://[::1]:80"]}`:                   "an origin has no default port",
		`cors: {origins: ["https://app.example:0443"]}`:          "origins must be http or https addresses without a path",
		`cors: {origins: ["https://app.example:80"]}`:            "",
		`cors: {origins: [https://app.example/]}`:                "origins must be http or https addresses without a path",
		`cors: {origins: [https://App.example]}`:                 "origins must be http or https addresses without a path",
		`cors: {origins: [app.example]}`:                         "origins must be http or https addresses without a path",
		`cors: {origins: ["https://*.example"]}`:                 "origins must be http or https addresses without a path",
		`cors: {origins: ["null"]}`:                              "origins must be http or https addresses without a path",
		`cors: {origins: [` + many + `]}`:                        "origins must be http or https addresses without a path",
		`cors: {origins: [https://a.example], headers: ["X A"]}`: "headers must be names of HTTP headers",
		`cors: {origins: [https://a.example], headers: ["*"]}`:   "headers must be names of HTTP headers",
	} {
		text := "version: v1\nagents: {a: {scripted: {steps: [{echo: true}]}}}\nserver: {" + settings + "}\n"
		_, err := Loader{Env: noEnv, Files: fstest.MapFS{}}.Parse("team.yaml", []byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", settings, err, want)
		}
	}
}

func TestA_10_CardSettings(t *testing.T) {
	for text, want := range map[string]string{
		"server: {signing: {}}\n": "signing needs at least one key",
		"server: {signing: {keys: [{kid: a, file: a.pem}, {kid: a, file: b.pem}]}}\n":                               "signing needs at least one key",
		"server: {trusted_proxies: [10.0.0.0/8, \"::1\", 192.0.2.1]}\n":                                             "",
		"server: {trusted_proxies: [10.0.0.0/99]}\n":                                                                "trusted_proxies must be IP addresses or CIDRs",
		"agents: {a: {scripted: {steps: [{echo: true}]}, extended_card: [{for: [a/b/c], description: d}]}}\n":       "for must list accounts",
		"agents: {a: {scripted: {steps: [{echo: true}]}, extended_card: [{skills: [{id: s, instructions: i}]}]}}\n": "cards do not contain the instructions",
	} {
		if !strings.HasPrefix(text, "agents") {
			text = "agents: {a: {scripted: {steps: [{echo: true}]}}}\n" + text
		}
		_, err := Loader{Env: noEnv, Files: fstest.MapFS{}}.Parse("team.yaml", []byte("version: v1\n"+text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
