package auth

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/zap"
)

// document is a transport that answers with the keys of an issuer, and counts the requests.
type document struct {
	keys     atomic.Value // []any
	down     atomic.Bool
	requests atomic.Int64
}

func newDocument(keys ...any) *document {
	d := &document{}
	d.keys.Store(keys)
	return d
}

func (d *document) RoundTrip(*http.Request) (*http.Response, error) {
	d.requests.Add(1)
	if d.down.Load() {
		return nil, errors.New("the issuer is down")
	}
	body, err := json.Marshal(map[string]any{"keys": d.keys.Load()})
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body))}, err
}

// read runs a function in a bubble while the keys of a document are fetched. has reports whether a key is in use.
func (d *document) read(t *testing.T, f func(t *testing.T, has func(kid, alg string) bool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &issuerKeys{
			of: Issuer{JWKSURL: "https://id.example/keys"}, http: &http.Client{Transport: d}, log: zap.NewNop(),
			wake: make(chan struct{}, 1), every: fetchEvery, again: fetchAgain,
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go k.run(ctx)
		synctest.Wait()
		f(t, func(kid, alg string) bool {
			keys, _ := k.find(kid, alg)
			synctest.Wait()
			return len(keys) > 0
		})
	})
}

// pass lets seconds pass until something is done, and returns their number, at most most.
func pass(most int, done func() bool) (seconds int) {
	for ; seconds < most && !done(); seconds++ {
		time.Sleep(time.Second)
		synctest.Wait()
	}
	return seconds
}

// TestUnknownKeyIDsAreFetchedSeldom: callers with unknown key ids cannot make the server fetch keys at will. A new key is
// found soon, one that has gone is refused within a minute, as without these callers, and those that are listed stay.
func TestUnknownKeyIDsAreFetchedSeldom(t *testing.T) {
	t.Parallel()
	one, two, three := newPair(t, "one", "ES256").public(), newPair(t, "two", "ES256").public(), newPair(t, "three", "ES256").public()
	for name, unknown := range map[string]string{"unknown key ids": "unknown", "none": "two"} {
		d := newDocument(one, two)
		d.read(t, func(t *testing.T, has func(kid, alg string) bool) {
			t.Helper()
			pass(600, func() bool { has(unknown, "ES256"); return false })
			least, most := int64(600/25), int64(600/25+1)
			if unknown == "unknown" {
				most = 600/5 + 1
			}
			if n := d.requests.Load(); n < least || n > most {
				t.Errorf("%s: %d requests in 10 minutes", name, n)
			}
			d.keys.Store([]any{two, three})
			if took := pass(60, func() bool { return has("three", "ES256") }); took > 10 {
				t.Errorf("%s: the new key was found after %d s", name, took)
			}
			took := pass(100, func() bool { has(unknown, "ES256"); return !has("one", "ES256") })
			if took < 20 || took > 60 || !has("two", "ES256") {
				t.Errorf("%s: the key that has gone was refused after %d s", name, took)
			}
		})
	}
}

// TestIssuerIsDown: the keys of an issuer that is down at the start are found soon after it is up, and those of one that
// goes down later stay in use for an hour.
func TestIssuerIsDown(t *testing.T) {
	t.Parallel()
	d := newDocument(newPair(t, "one", "ES256").public())
	d.down.Store(true)
	d.read(t, func(t *testing.T, has func(kid, alg string) bool) {
		t.Helper()
		for _, down := range []int{3, 3600} { // seconds
			pass(down, func() bool { return has("one", "ES256") })
			if n := d.requests.Load(); has("one", "ES256") || n > int64(3+down/10) {
				t.Errorf("after %d s there is a key, or were %d requests", down, n)
			}
			d.down.Store(false)
			if took := pass(100, func() bool { return has("one", "ES256") }); took > min(2*down, 25) {
				t.Errorf("the keys were found %d s after the issuer was up", took)
			}
			d.down.Store(true)
			if took := pass(7200, func() bool { return !has("one", "ES256") }); took < 3500 || took > 3700 {
				t.Errorf("the keys of an issuer that is down were used for %d s", took)
			}
			d.requests.Store(0)
		}
	})
}

// TestKeysThatAreNotUsed: a document may list keys that do not verify tokens. They are not used, and do not stand in the
// way of others. Large documents are not read.
func TestKeysThatAreNotUsed(t *testing.T) {
	t.Parallel()
	good, private, encrypts, other := newPair(t, "good", "ES256"), newPair(t, "private", "ES256"), newPair(t, "encrypts", "ES256").public(), newPair(t, "other", "ES256").public()
	encrypts.Use, other.Algorithm = "enc", "ES384"
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	d := newDocument(
		jose.JSONWebKey{Key: []byte("a secret of 32 bytes, or of more"), KeyID: "secret", Algorithm: "HS256"},
		jose.JSONWebKey{Key: private.private, KeyID: "private"}, encrypts, other,
		jose.JSONWebKey{Key: &small.PublicKey, KeyID: "small"},
		"no key", map[string]any{"kty": "EC", "kid": "broken", "crv": "P-256", "x": "AA", "y": "AA"}, map[string]any{"kty": "OKP", "kid": "unknown", "crv": "Ed448", "x": "AA"},
		good.public(),
	)
	d.read(t, func(t *testing.T, has func(kid, alg string) bool) {
		t.Helper()
		for _, alg := range append(algorithms(), "HS256", "none") {
			for _, kid := range []string{"secret", "private", "encrypts", "other", "small", "broken", "unknown", "good"} {
				if has(kid, alg) != (kid == "good" && alg == "ES256") {
					t.Errorf("the key %q for %s: %t", kid, alg, has(kid, alg))
				}
			}
		}
		d.keys.Store([]any{good.public(), newPair(t, "late", "ES256").public(), strings.Repeat("x", maxDocument)})
		pass(60, func() bool { return has("late", "ES256") })
		if has("late", "ES256") || !has("good", "ES256") {
			t.Error("a key of a document that is too large is used")
		}
	})
}

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
