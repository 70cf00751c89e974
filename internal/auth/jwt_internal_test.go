package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/pkg/agent"
)

// fakeIssuer is an issuer of tokens whose documents a test changes.
type fakeIssuer struct {
	*httptest.Server
	t        *testing.T
	requests atomic.Int64

	mu   sync.Mutex
	keys []jose.JSONWebKey // guarded by mu
	down bool              // guarded by mu
}

func newIssuer(t *testing.T) *fakeIssuer {
	f := &fakeIssuer{t: t}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		f.answer(w, map[string]any{"issuer": f.URL, "jwks_uri": f.URL + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		set := jose.JSONWebKeySet{Keys: f.keys}
		f.mu.Unlock()
		f.answer(w, set)
	})
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeIssuer) answer(w http.ResponseWriter, v any) {
	f.requests.Add(1)
	f.mu.Lock()
	down := f.down
	f.mu.Unlock()
	if down {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if err := json.NewEncoder(w).Encode(v); err != nil {
		f.t.Error(err)
	}
}

func (f *fakeIssuer) lists(keys ...jose.JSONWebKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys = keys
}

// keyPair is a key of an issuer.
type keyPair struct {
	kid, alg string
	private  crypto.Signer
}

func (k keyPair) public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: k.private.Public(), KeyID: k.kid, Algorithm: k.alg, Use: "sig"}
}

func newPair(t *testing.T, kid, alg string) keyPair {
	t.Helper()
	var key crypto.Signer
	var err error
	switch alg {
	case "ES256":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "EdDSA":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	default:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		t.Fatal(err)
	}
	return keyPair{kid, alg, key}
}

func encoded(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// sign returns a token; extra fields are added to its header.
func (k keyPair) sign(t *testing.T, claims, extra map[string]any) string {
	t.Helper()
	header := map[string]any{"alg": k.alg, "kid": k.kid}
	maps.Copy(header, extra)
	return k.signText(t, encoded(header)+"."+encoded(claims))
}

func (k keyPair) signText(t *testing.T, text string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(text))
	var sig []byte
	var err error
	switch key := k.private.(type) {
	case *rsa.PrivateKey:
		sig, err = rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	case *ecdsa.PrivateKey:
		r, s, signErr := ecdsa.Sign(rand.Reader, key, sum[:])
		if err = signErr; err == nil {
			sig = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
		}
	case ed25519.PrivateKey:
		sig = ed25519.Sign(key, []byte(text))
	}
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// tokensOf returns a server that accepts the tokens of issuers and fetches keys often, once it has keys.
func tokensOf(t *testing.T, every time.Duration, list ...*teamv1.JwtIssuer) *Server {
	t.Helper()
	sum := sha256.Sum256([]byte("an API key"))
	s, err := New(Config{Accept: &teamv1.AuthConfig{Jwt: list, ApiKeys: []*teamv1.ApiKey{{Name: "key", Sha256: hexOf(sum[:])}}}, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range s.now.Load().tokens.issuers {
		i.keys.every, i.keys.again = every, min(every, time.Millisecond)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	for _, i := range s.now.Load().tokens.issuers {
		await(t, "no keys were fetched", func() bool { return i.keys.known.Load() != nil })
	}
	return s
}

func hexOf(b []byte) string {
	const digits = "0123456789abcdef"
	var s strings.Builder
	for _, c := range b {
		s.WriteByte(digits[c>>4])
		s.WriteByte(digits[c&15])
	}
	return s.String()
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// good are valid claims.
func good(f *fakeIssuer) map[string]any {
	return map[string]any{"iss": f.URL, "aud": "team", "sub": "ann", "exp": time.Now().Add(time.Hour).Unix()}
}

// changed returns claims with one changed; nil removes it.
func changed(claims map[string]any, name string, value any) map[string]any {
	c := maps.Clone(claims)
	c[name] = value
	if value == nil {
		delete(c, name)
	}
	return c
}

func ask(s *Server, token string) (identity.Caller, error) {
	return s.Authenticate(Request{Authorization: []string{"Bearer " + token}, Again: true}) // guesses would be slowed down
}

// TestT_10_BadTokens: tokens that are malformed, signed by others or otherwise, for others, or not valid
// now are UNAUTHENTICATED. None causes a request, and each costs little memory.
func TestT_10_BadTokens(t *testing.T) {
	f := newIssuer(t)
	key, ec, ed, stranger := newPair(t, "one", "RS256"), newPair(t, "two", "ES256"), newPair(t, "three", "EdDSA"), newPair(t, "one", "RS256")
	f.lists(key.public(), ec.public(), ed.public())
	s := tokensOf(t, time.Hour, &teamv1.JwtIssuer{Name: "corp", Issuer: f.URL, Audiences: []string{"team", "other"}, Account: "acme"})
	claims := good(f)
	for _, k := range []keyPair{key, ec, ed} {
		for _, typ := range []map[string]any{nil, {"typ": "JWT"}, {"typ": "at+jwt"}} {
			who, err := ask(s, k.sign(t, claims, typ))
			if err != nil || who.Owner() != "acme/corp:ann" || who.Permissions != identity.DefaultPermissions || who.Expires.IsZero() {
				t.Fatalf("%s: %+v, %v", k.alg, who, err)
			}
		}
	}
	if who, err := ask(s, "an API key"); err != nil || who.Owner() != "default/key" {
		t.Errorf("an API key beside tokens: %v, %v", who, err)
	}
	signed := key.sign(t, claims, nil)
	public, err := json.Marshal(key.public())
	if err != nil {
		t.Fatal(err)
	}
	hmacked := encoded(map[string]any{"alg": "HS256", "kid": "one"}) + "." + encoded(claims)
	mac := hmac.New(sha256.New, public)
	mac.Write([]byte(hmacked))
	text, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	header := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"one","kid":"one"}`))
	jku := map[string]any{"jku": f.URL + "/evil", "x5u": f.URL + "/evil", "jwk": stranger.public()}
	twice := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(text), `"sub"`, `"sub":"eve","s\u0075b"`, 1)))
	deep := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(text), `"sub"`, `"x":`+strings.Repeat(`{"":`, 1000)+"1"+strings.Repeat("}", 1000)+`,"sub"`, 1)))
	asked := f.requests.Load()
	for name, token := range map[string]string{
		"no algorithm":                encoded(map[string]any{"alg": "none"}) + "." + encoded(claims) + ".",
		"the public key as a secret":  hmacked + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)),
		"an algorithm that is off":    key.sign(t, claims, map[string]any{"alg": "RS384"}),
		"another key":                 stranger.sign(t, claims, nil),
		"an unknown kid":              stranger.sign(t, claims, map[string]any{"kid": "../../etc/passwd"}),
		"a kid that is no text":       key.sign(t, claims, map[string]any{"kid": 7}),
		"no audience":                 key.sign(t, changed(claims, "aud", nil), nil),
		"another audience":            key.sign(t, changed(claims, "aud", []string{"else"}), nil),
		"another issuer":              key.sign(t, changed(claims, "iss", f.URL+"/"), nil),
		"no issuer":                   key.sign(t, changed(claims, "iss", nil), nil),
		"expired":                     key.sign(t, changed(claims, "exp", now.Add(-time.Minute).Unix()), nil),
		"no expiry":                   key.sign(t, changed(claims, "exp", nil), nil),
		"an expiry that is a text":    key.sign(t, changed(claims, "exp", "2099-01-01"), nil),
		"not valid yet":               key.sign(t, changed(claims, "nbf", now.Add(2*time.Minute).Unix()), nil),
		"issued in the future":        key.sign(t, changed(claims, "iat", now.Add(2*time.Minute).Unix()), nil),
		"critical extensions":         key.sign(t, claims, map[string]any{"crit": []string{"exp"}, "exp": 1}),
		"critical b64":                key.sign(t, claims, map[string]any{"crit": []string{"b64"}, "b64": true}),
		"10,000 dots":                 strings.Repeat(".", 8000),
		"too long":                    signed + strings.Repeat("A", 9<<10),
		"an ID token":                 key.sign(t, changed(claims, "nonce", "x"), nil),
		"an ID token of another type": key.sign(t, claims, map[string]any{"typ": "logout+jwt"}),
		"keys in the header":          stranger.sign(t, claims, jku),
		"a name twice in the header":  key.signText(t, header+"."+encoded(claims)),
		"a name twice in the claims":  key.signText(t, encoded(map[string]any{"alg": "RS256", "kid": "one"})+"."+twice),
		"claims that are no object":   key.signText(t, encoded(map[string]any{"alg": "RS256", "kid": "one"})+"."+encoded([]any{claims})),
		"deep claims":                 stranger.signText(t, encoded(map[string]any{"alg": "RS256", "kid": "one"})+"."+deep),
		"another subject":             strings.Replace(signed, ".", "."+encoded(changed(claims, "sub", "root"))+".", 1)[:len(signed)],
		"no subject":                  key.sign(t, changed(claims, "sub", nil), nil),
		"a subject that is no text":   key.sign(t, changed(claims, "sub", 7), nil),
		"no signature":                signed[:strings.LastIndex(signed, ".")+1],
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		who, err := ask(s, token)
		runtime.ReadMemStats(&after)
		var no *Refusal
		if e := agent.AsError(err); !errors.As(err, &no) || e.Code != agent.CodeUnauthenticated || e.Reason != agent.ReasonUnauthenticated {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%s: %d bytes", name, n)
		}
	}
	await(t, "unknown key ids fetch the keys again", func() bool { return f.requests.Load() > asked })
}

// TestT_10_NoRequestForACall: a call with an unknown key id is answered without a request, while the
// issuer cannot be reached. Before keys were read, calls with tokens are UNAVAILABLE.
func TestT_10_NoRequestForACall(t *testing.T) {
	f := newIssuer(t)
	key := newPair(t, "one", "ES256")
	s, err := New(Config{Accept: &teamv1.AuthConfig{Jwt: []*teamv1.JwtIssuer{{Name: "corp", Issuer: f.URL, Audiences: []string{"team"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = ask(s, key.sign(t, good(f), nil))
	if e := agent.AsError(err); e.Code != agent.CodeUnavailable || !e.Retry || f.requests.Load() != 0 {
		t.Errorf("%v after %d requests", err, f.requests.Load())
	}
}

// TestT_10_IssuerKeysRotate: a new key of an issuer is accepted soon, the one before as long as it is
// listed, and shortly after. If the issuer fails, its keys stay in use.
func TestT_10_IssuerKeysRotate(t *testing.T) {
	f := newIssuer(t)
	one, two := newPair(t, "one", "ES256"), newPair(t, "two", "ES256")
	f.lists(one.public())
	s := tokensOf(t, 5*time.Millisecond, &teamv1.JwtIssuer{Name: "corp", Issuer: f.URL, Audiences: []string{"team"}})
	accepted := func(k keyPair) bool {
		_, err := ask(s, k.sign(t, good(f), nil))
		return err == nil
	}
	f.lists(one.public(), two.public())
	await(t, "the new key is not accepted", func() bool {
		if !accepted(one) {
			t.Fatal("the key before is refused while it is listed")
		}
		return accepted(two)
	})
	f.lists(two.public())
	await(t, "the old key is accepted on", func() bool { return !accepted(one) })
	f.mu.Lock()
	f.down = true
	f.mu.Unlock()
	n := f.requests.Load()
	await(t, "the keys are not fetched again", func() bool { return f.requests.Load() > n })
	if !accepted(two) {
		t.Error("the key is refused because the issuer fails")
	}
}

// TestT_10_Claims: the account, the principal, roles and permissions come from the claims that the
// configuration names, and never exceed it. Subjects stay different.
func TestT_10_Claims(t *testing.T) {
	f := newIssuer(t)
	key := newPair(t, "one", "ES256")
	f.lists(key.public())
	s := tokensOf(t, time.Hour, &teamv1.JwtIssuer{
		Name: "corp", Issuer: f.URL, Audiences: []string{"team"}, Permissions: []teamv1.Permission_Value{teamv1.Permission_READ, teamv1.Permission_MANAGE},
		Claims: &teamv1.JwtClaims{Account: "org.id", Principal: "email", Roles: "https://team.example/roles", Permissions: "scope"},
	})
	claims := good(f)
	claims["org"] = map[string]any{"id": "acme"}
	claims["email"] = "ann/x y@team.example"
	claims["https://team.example/roles"] = []any{"editor", "Not A Role", 7}
	claims["scope"] = "openid manage ADMIN"
	who, err := ask(s, key.sign(t, claims, nil))
	if err != nil || who.Owner() != "acme/corp:ann%2Fx+y@team.example" || strings.Join(who.Roles, " ") != "editor" || who.Permissions != identity.PermissionManage {
		t.Errorf("%+v, %v", who, err)
	}
	for owner, want := range map[string]bool{who.Owner(): true, "acme/corp:eve": false, "acme/else:ann": false, "acme/corp": false, "default/key": true} {
		if got, err := s.Holds(t.Context(), owner); got != want || err != nil {
			t.Errorf("%s may call: %v, %v", owner, got, err)
		}
	}
	for name, account := range map[string]any{"a slash": "a/b", "none": nil, "a number": 7, "empty": "", "a dash": "-", "a dot": ".", "two dots": "..", "a control character": "a\n"} {
		claims["org"] = map[string]any{"id": account}
		if who, err := ask(s, key.sign(t, claims, nil)); err == nil {
			t.Errorf("an account with %s: %+v", name, who)
		}
	}
	seen := map[string]string{}
	for _, subject := range []string{"a b", "a+b", "a%20b", "A b", "a@b", "a%40b", "a|b", "a:b", "ä"} {
		if other, has := seen[escape(subject)]; has {
			t.Errorf("%q and %q are the same principal", subject, other)
		}
		seen[escape(subject)] = subject
	}
}

// FuzzT_10_Tokens: no token makes the authentication panic or accept it.
func FuzzT_10_Tokens(f *testing.F) {
	t, err := newTokens([]Issuer{{Name: "corp", URL: "https://id.example", Audiences: []string{"team"}}}, func(i Issuer) (*issuerKeys, error) {
		k := &issuerKeys{wake: make(chan struct{}, 1)}
		k.use(nil, true)
		return k, nil
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encoded(map[string]any{"alg": "RS256"}) + "." + encoded(map[string]any{"iss": "https://id.example"}) + ".AAAA")
	f.Add("..")
	f.Fuzz(func(test *testing.T, token string) {
		if who, err := t.Authenticate(Request{Authorization: []string{"Bearer " + token}}); err == nil {
			test.Errorf("accepted as %v", who)
		}
	})
}
