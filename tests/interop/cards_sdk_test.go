package interop

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentteams/team-server/tests/interoprig"
)

// scriptTime bounds what one call of a script or of our program takes.
const scriptTime = 30 * time.Second

// cards returns what runs the script for cards.
func cards(t *testing.T) func(args ...string) (output string, ok bool) {
	t.Helper()
	node := interoprig.Node(t)
	return func(args ...string) (string, bool) {
		ctx, cancel := context.WithTimeout(t.Context(), scriptTime)
		defer cancel()
		run := exec.CommandContext(ctx, node, append([]string{filepath.Join("js", "cards.mjs")}, args...)...)
		run.Stderr = os.Stderr
		out, err := run.Output()
		return strings.TrimSpace(string(out)), err == nil
	}
}

// The file is made and checked by the tests of internal/cardsign.
func TestA_10_JavaScriptSDKHasTheSameCanonicalForm(t *testing.T) {
	out, ok := cards(t)("vectors", "testdata/cards.json")
	if !ok {
		t.Error(out)
	}
	t.Log(out)
}

const signedTeam = `version: v1
agents:
  echo: {description: Gives back what it is told., scripted: {steps: [{echo: true}]}}
server:
  public_url: https://team.example
  signing: {keys: [{kid: ec, file: ec.pem}, {kid: ed, file: ed.pem}, {kid: rsa, file: rsa.pem}]}
  auth: {api_keys: [{name: ann, sha256: d0c04f4b1951e4aeaaec8223ed2039e542f3aae805a6fa7f6d794e5afff5d272}]}
`

// A server with API keys: its card holds something empty, a scheme without scopes.
func TestA_10_JavaScriptSDKVerifiesOurCards(t *testing.T) {
	run, dir, program := cards(t), t.TempDir(), interoprig.BuildServer(t)
	writeKeys(t, dir)
	s := interoprig.Start(t, program, "serve", "-c", write(t, dir, "team.yaml", []byte(signedTeam)))
	card, keys := get(t, s.URL+"/.well-known/agent-card.json"), get(t, s.URL+"/.well-known/jwks.json")
	t.Run("each key", func(t *testing.T) {
		for kid, alg := range map[string]string{"ec": "ES256", "ed": "EdDSA", "rsa": "RS256"} {
			one := write(t, dir, kid+".json", keyOf(t, keys, kid))
			want := "verified " + kid + " https://team.example/.well-known/jwks.json"
			if out, ok := run("verify", s.URL+"/.well-known/agent-card.json", one); !ok || out != want {
				t.Errorf("%s: %s", alg, out)
			}
		}
	})
	t.Run("a changed card", func(t *testing.T) {
		changed := write(t, dir, "changed.json", []byte(strings.Replace(string(card), "https://team.example", "https://evil.example", 1)))
		if out, ok := run("verify", changed, s.URL+"/.well-known/jwks.json"); ok || !strings.HasPrefix(out, "refused") {
			t.Error(out)
		}
	})
	t.Run("the other way round", func(t *testing.T) {
		out, ok := run("sign", write(t, dir, "card.json", card))
		if !ok {
			t.Fatal(out)
		}
		var made struct{ Card, JWKS json.RawMessage }
		if err := json.Unmarshal([]byte(out), &made); err != nil {
			t.Fatal(err)
		}
		theirs, own := write(t, dir, "jwks.json", made.JWKS), write(t, dir, "own.json", keys)
		at := hosted(t, made.Card)
		if out, err := ours(t, program, at, theirs); err != nil || !strings.Contains(out, `signed by trusted key "js"`) {
			t.Errorf("%v: %s", err, out)
		}
		if out, err := ours(t, program, at, own); err == nil || !strings.Contains(out, "not trusted") {
			t.Errorf("a foreign key: %v: %s", err, out)
		}
		changed := strings.Replace(string(made.Card), "Gives back", "Takes", 1)
		if out, err := ours(t, program, hosted(t, []byte(changed)), theirs); err == nil || !strings.Contains(out, "does not match") {
			t.Errorf("a changed card: %v: %s", err, out)
		}
	})
}

// What a client gets that leaves the card to its SDK: the resolver fetches it as it likes, and
// the verifier is the SDK's. The servers differ in security schemes.
func TestA_10_SDKResolversVerifyOurCards(t *testing.T) {
	js, python := cards(t), interoprig.Python(t)
	program, dir := interoprig.BuildServer(t), t.TempDir()
	writeKeys(t, dir)
	open, _, _ := strings.Cut(signedTeam, "  auth:")
	for name, file := range map[string]string{"open": open, "with API keys": signedTeam} {
		t.Run(name, func(t *testing.T) {
			s := interoprig.Start(t, program, "serve", "-c", write(t, dir, strings.ReplaceAll(name, " ", "-")+".yaml", []byte(file)))
			keys := get(t, s.URL+"/.well-known/jwks.json")
			for kid, alg := range map[string]string{"ec": "ES256", "ed": "EdDSA", "rsa": "RS256"} {
				one := write(t, dir, kid+".json", keyOf(t, keys, kid))
				verified, base := "verified "+kid+" https://team.example/.well-known/jwks.json", s.URL+"/echo"
				want := verified
				if name == "with API keys" {
					// The SDK's resolver reads a card with security schemes as a message of the protocol, and its
					// verifier reads that message as if it were JSON again: the schemes are lost, and what is left
					// was signed by nobody. The same card, as it came, is verified below.
					want = "refused: No valid signatures found on agent card."
				}
				if out, _ := js("resolve", base, one); out != want {
					t.Errorf("@a2a-js/sdk, %s: %s, want %s; where the SDK has changed, so does docs/protocol.md", alg, out, want)
				}
				if out, err := script(t, python, filepath.Join("python", "cards.py"), base, one, alg); err != nil || out != verified {
					t.Errorf("a2a-sdk, %s: %v %s", alg, err, out)
				}
			}
		})
	}
}

// script runs a program and returns what it says.
func script(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), scriptTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// writeKeys writes the files of signedTeam's keys.
func writeKeys(t *testing.T, dir string) {
	t.Helper()
	ec, ed, rs := signingKeys(t)
	for name, key := range map[string]crypto.Signer{"ec.pem": ec, "ed.pem": ed, "rsa.pem": rs} {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	}
}

func signingKeys(t *testing.T) (*ecdsa.PrivateKey, ed25519.PrivateKey, *rsa.PrivateKey) {
	t.Helper()
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return ec, ed, rs
}

func write(t *testing.T, dir, name string, data []byte) (path string) {
	t.Helper()
	path = filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("A2A-Version", "1.0")
	client := &http.Client{Timeout: scriptTime, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %v", url, resp.StatusCode, err)
	}
	return body
}

// keyOf is a JWK set with one of its keys.
func keyOf(t *testing.T, set []byte, kid string) []byte {
	t.Helper()
	var all struct {
		Keys []map[string]any `json:"keys"`
	}
	if err := json.Unmarshal(set, &all); err != nil {
		t.Fatal(err)
	}
	for _, k := range all.Keys {
		if k["kid"] == kid {
			b, err := json.Marshal(map[string]any{"keys": []any{k}})
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
	}
	t.Fatalf("no key %q in %s", kid, set)
	return nil
}

// ours is what our program says of a card, with keys to trust.
func ours(t *testing.T, program, url, keys string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), scriptTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "card", url, "--verify", keys).CombinedOutput()
	return string(out), err
}

// hosted serves a card and returns where it is.
func hosted(t *testing.T, card []byte) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(card)
	}))
	t.Cleanup(s.Close)
	return s.URL
}
