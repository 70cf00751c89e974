package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/testkit/testcerts"
)

// TestT_7_TLSSettings: what is wrong with the settings of TLS and of callers is said with what to write.
func TestT_7_TLSSettings(t *testing.T) {
	dir := t.TempDir()
	ca := testcerts.New(t, "ca")
	cert, key := ca.Issue(time.Now().Add(time.Hour), "team.example")
	_, other := ca.Issue(time.Now().Add(time.Hour), "team.example")
	testcerts.Write(t, dir, "cert.pem", cert)
	testcerts.Write(t, dir, "key.pem", key)
	testcerts.Write(t, dir, "other.pem", other)
	testcerts.Write(t, dir, "ca.pem", ca.PEM)
	const good = "tls: {cert: cert.pem, key: key.pem, client_ca: ca.pem"
	apiKey := "auth: {api_keys: [{name: ann, sha256: " + strings.Repeat("0", 64) + ", expires: "
	for settings, fault := range map[string]string{
		good + "}": "",
		good + ", client: REQUIRED}, auth: {mtls: [{san: \"spiffe://x/ann\", name: ann}]}":           "",
		"tls: {terminated_by_proxy: true}":                                                           "",
		"tls: {}":                                                                                    "tls needs cert and key",
		"tls: {cert: cert.pem}":                                                                      "tls needs cert and key",
		"tls: {cert: cert.pem, key: key.pem, terminated_by_proxy: true}":                             "tls needs cert and key",
		"tls: {cert: cert.pem, key: key.pem, client: REQUIRED}":                                      "tls.client has no effect without client_ca",
		"tls: {cert: cert.pem, key: other.pem}":                                                      "tls.cert and tls.key are no certificate with its key",
		"tls: {cert: absent.pem, key: key.pem}":                                                      "tls.cert",
		"tls: {cert: cert.pem, key: key.pem, client_ca: key.pem}":                                    "contains no certificate",
		"auth: {mtls: [{san: x, name: ann}]}":                                                        "auth.mtls needs certificates of clients",
		good + "}, auth: {mtls: [{san: \"\", name: ann}]}":                                           "san must be a URI",
		good + "}, auth: {mtls: [{san: x, name: a/b}]}":                                              "this cannot be the name of a client",
		apiKey + "2027-01-31T00:00:00Z}]}":                                                           "",
		apiKey + "\"2027-01-31T00:00:00+01:00\"}]}":                                                  "",
		apiKey + "tomorrow}]}":                                                                       "expires must be a time of RFC 3339",
		apiKey + "2027-13-31T00:00:00Z}]}":                                                           "expires must be a time of RFC 3339",
		"}, agents: {far: {grpc: {address: \"127.0.0.1:1\", tls: {cert: cert.pem, key: key.pem}}}":   "",
		"}, agents: {far: {grpc: {address: \"127.0.0.1:1\", tls: {cert: cert.pem}}}":                 "a client certificate needs cert and key",
		"}, agents: {far: {grpc: {address: \"127.0.0.1:1\", tls: {cert: cert.pem, key: other.pem}}}": "tls.cert and tls.key are no certificate with its key",
	} {
		file := filepath.Join(dir, "team.yaml")
		agents := ""
		if !strings.Contains(settings, "agents:") {
			agents = "agents: {parrot: {scripted: {steps: [{echo: true}]}}}, "
		}
		text := "{version: v1, " + agents + "server: {" + settings + "}}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Loader{}.Load(file)
		if fault == "" && err != nil || fault != "" && (err == nil || !strings.Contains(err.Error(), fault)) {
			t.Errorf("%s: got %v, want %q", settings, err, fault)
		}
	}
}
