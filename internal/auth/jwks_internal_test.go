package auth

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
)

// TestT_14_AddressOfTheKeys: a discovery document cannot lead to a private address that the operator did
// not write, nor to http beyond this machine.
func TestT_14_AddressOfTheKeys(t *testing.T) {
	for at, want := range map[string]string{
		"https://10.0.0.5:1/keys":    "the discovery document names 10.0.0.5:1, which is not public; set jwks_url",
		"https://169.254.169.254/":   "the discovery document names 169.254.169.254:443, which is not public; set jwks_url",
		"http://public.example/keys": "jwks_uri of the discovery document is not an https address",
	} {
		var f *httptest.Server
		f = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(map[string]any{"issuer": f.URL, "jwks_uri": at})
		}))
		k, err := newIssuerKeys(Issuer{Name: "corp", URL: f.URL}, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.fetch(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", at, err)
		}
		k.http.CloseIdleConnections()
		f.Close()
	}
	for address, want := range map[string]bool{"http://localhost:1/keys": false, "https://keys.example": true, "https:///": false} {
		if got := (Issuer{URL: "https://id.example"}).mayName(address); got != want {
			t.Errorf("an issuer elsewhere names %s: %t", address, got)
		}
	}
}
