package cardsign

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sample has something empty: schemes without scopes.
const sample = `{
	"name": "desk", "description": "Über \u20ac <b>", "version": "1",
	"supportedInterfaces": [{"url": "http://127.0.0.1/desk/rpc", "protocolBinding": "JSONRPC", "tenant": "desk", "protocolVersion": "1.0"}],
	"capabilities": {"streaming": true, "pushNotifications": false, "extensions": [{"uri": "urn:x", "params": {"b": 1.5, "a": "x"}}]},
	"securitySchemes": {"apiKey": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
	"securityRequirements": [{"schemes": {"apiKey": {}}}],
	"defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
	"skills": [{"id": "desk", "name": "desk", "description": "desk", "tags": ["agent"]}]
}`

func card(t *testing.T, text string) *a2av1.AgentCard {
	t.Helper()
	c := &a2av1.AgentCard{}
	if err := protojson.Unmarshal([]byte(text), c); err != nil {
		t.Fatal(err)
	}
	return c
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ec(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	return must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
}

func signer(t *testing.T, keys ...Key) *Signer {
	t.Helper()
	return must[*Signer](t)(NewSigner(keys, ""))
}

func trust(t *testing.T, s *Signer) *Trust {
	t.Helper()
	return must[*Trust](t)(NewTrust(s.JWKS()))
}

func signed(t *testing.T, s *Signer) *a2av1.AgentCard {
	t.Helper()
	c := card(t, sample)
	if err := s.Sign(c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestA_10_CanonicalForm(t *testing.T) {
	for name, c := range map[string]struct{ card, canonical, compact string }{
		"nothing set: what is required is there all the same": {
			`{}`,
			`{"capabilities":{},"defaultInputModes":[],"defaultOutputModes":[],"description":"","name":"","skills":[],"supportedInterfaces":[],"version":""}`,
			`{}`,
		},
		"optional fields are there when they are set, also to their default": {
			`{"name": "n", "iconUrl": "", "documentationUrl": "d", "capabilities": {"streaming": false, "extensions": [{"required": false}]}}`,
			`{"capabilities":{"extensions":[{}],"streaming":false},"defaultInputModes":[],"defaultOutputModes":[],"description":"","documentationUrl":"d","iconUrl":"","name":"n","skills":[],"supportedInterfaces":[],"version":""}`,
			`{"capabilities":{"streaming":false},"documentationUrl":"d","name":"n"}`,
		},
		"required ones deeper down": {
			`{"provider": {"organization": "o"}, "skills": [{"id": "s"}], "securitySchemes": {"k": {"apiKeySecurityScheme": {}}}}`,
			`{"capabilities":{},"defaultInputModes":[],"defaultOutputModes":[],"description":"","name":"","provider":{"organization":"o","url":""},` +
				`"securitySchemes":{"k":{"apiKeySecurityScheme":{"location":"","name":""}}},"skills":[{"description":"","id":"s","name":"","tags":[]}],"supportedInterfaces":[],"version":""}`,
			`{"provider":{"organization":"o"},"skills":[{"id":"s"}]}`,
		},
		"signatures are no part of it": {
			`{"signatures": [{"protected": "a", "signature": "b"}]}`,
			`{"capabilities":{},"defaultInputModes":[],"defaultOutputModes":[],"description":"","name":"","skills":[],"supportedInterfaces":[],"version":""}`,
			`{}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.canonical, string(must[[]byte](t)(canonicalJSON(card(t, c.card))))); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.compact, string(must[[]byte](t)(compactJSON(card(t, c.card))))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The examples of RFC 8785, sections 3.2.2 to 3.2.4, and numbers of appendix B, as
// the parameters of an extension.
func TestA_10_CanonicalFormRFC8785(t *testing.T) {
	for _, c := range []struct{ in, out string }{
		{
			`{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
			  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}`,
			`{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		},
		{
			`{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One",
			  "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin Small Letter O With Diaeresis"}`,
			"{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"\U0001F600\":\"Emoji: Grinning Face\",\"\uFB33\":\"Hebrew Letter Dalet With Dagesh\"}",
		},
		{
			`{"n": [0, -0, 5e-324, 1.7976931348623157e308, 9007199254740992, 295147905179352830000, 999999999999999900000, 1e21, 0.000001, 1e-7, 333333333.3333332]}`,
			`{"n":[0,0,5e-324,1.7976931348623157e+308,9007199254740992,295147905179352830000,999999999999999900000,1e+21,0.000001,1e-7,333333333.3333332]}`,
		},
	} {
		full := string(must[[]byte](t)(canonicalJSON(card(t, `{"capabilities": {"extensions": [{"params": `+c.in+`}]}}`))))
		got, _, _ := strings.Cut(strings.TrimPrefix(full, `{"capabilities":{"extensions":[{"params":`), `}]},"defaultInputModes"`)
		if diff := cmp.Diff(c.out, got); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := canonicalJSON(card(t, `{"capabilities": {"extensions": [{"params": {"n": "NaN"}}]}}`)); err != nil {
		t.Errorf("a text that looks like no number: %v", err)
	}
}

// Every kind of key, there and back; the same card is signed the same way each time.
func TestA_10_SignAndVerify(t *testing.T) {
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey := must[*rsa.PrivateKey](t)(rsa.GenerateKey(rand.Reader, minRSA))
	for name, key := range map[string]crypto.Signer{"ES256": ec(t), "EdDSA": edKey, "RS256": rsaKey} {
		t.Run(name, func(t *testing.T) {
			keys := []Key{{"k1", key}}
			s := must[*Signer](t)(NewSigner(keys, "https://team.example/.well-known/jwks.json"))
			c := signed(t, s)
			if again := signed(t, must[*Signer](t)(NewSigner(keys, "https://team.example/.well-known/jwks.json"))); !proto.Equal(c, again) {
				t.Error("another replica signs the same card in another way")
			}
			var header map[string]string
			raw, err := base64.RawURLEncoding.DecodeString(c.GetSignatures()[0].GetProtected())
			if err != nil || json.Unmarshal(raw, &header) != nil {
				t.Fatal(err)
			}
			want := map[string]string{"alg": name, "kid": "k1", "typ": "JOSE", "jku": "https://team.example/.well-known/jwks.json"}
			if diff := cmp.Diff(want, header); diff != "" {
				t.Error(diff)
			}
			got, kid, err := trust(t, s).Verify(c)
			if err != nil || kid != "k1" {
				t.Fatalf("%q %v", kid, err)
			}
			if diff := cmp.Diff(c, got, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
			file := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must[[]byte](t)(x509.MarshalPKCS8PrivateKey(key))})
			if back, err := ParsePrivate(file); err != nil || !back.(interface{ Equal(crypto.PrivateKey) bool }).Equal(key) {
				t.Errorf("the key in PEM: %v", err)
			}
			file = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must[[]byte](t)(x509.MarshalPKIXPublicKey(key.Public()))})
			if _, kid, err := must[*Trust](t)(NewTrust(file)).Verify(c); err != nil || kid != "k1" {
				t.Errorf("the public key in PEM: %q %v", kid, err)
			}
		})
	}
}

// A verifier of the compact form signs nothing that is empty, and believes no more.
func TestA_10_CompactForm(t *testing.T) {
	s := signer(t, Key{"k1", ec(t)})
	c := signed(t, s)
	if n := len(c.GetSignatures()); n != 2 {
		t.Fatalf("%d signatures, want one a form", n)
	}
	c.Signatures = c.GetSignatures()[1:]
	c.IconUrl = proto.String("")
	got, _, err := trust(t, s).Verify(c)
	if err != nil {
		t.Fatal(err)
	}
	if got.IconUrl != nil || len(got.GetSecurityRequirements()) != 0 || got.GetName() != "desk" {
		t.Errorf("more is believed than was signed: %v", got)
	}
}

func TestA_10_ChangedOrForeignCardIsRefused(t *testing.T) {
	key := ec(t)
	s := signer(t, Key{"k1", key})
	mallory := signer(t, Key{"mallory", ec(t)})
	posing := signer(t, Key{"k1", ec(t)})
	secret := must[jose.Signer](t)(jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: must[[]byte](t)(x509.MarshalPKIXPublicKey(key.Public()))},
		(&jose.SignerOptions{}).WithType("JOSE").WithHeader("kid", "k1")))
	for name, c := range map[string]struct {
		change func(*a2av1.AgentCard)
		want   string
	}{
		"unsigned":                     {func(c *a2av1.AgentCard) { c.Signatures = nil }, "is not signed"},
		"another text":                 {func(c *a2av1.AgentCard) { c.Description = "!" }, `key "k1" does not match`},
		"another address":              {func(c *a2av1.AgentCard) { c.SupportedInterfaces[0].Url = "http://evil" }, `key "k1" does not match`},
		"something more":               {func(c *a2av1.AgentCard) { c.DocumentationUrl = proto.String("x") }, `key "k1" does not match`},
		"a foreign key":                {func(c *a2av1.AgentCard) { _ = mallory.Sign(c) }, `is signed by "mallory"`},
		"a foreign key posing as ours": {func(c *a2av1.AgentCard) { _ = posing.Sign(c) }, `key "k1" does not match`},
		"alg none": {func(c *a2av1.AgentCard) {
			c.Signatures = []*a2av1.AgentCardSignature{{Protected: base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"k1","typ":"JOSE"}`))}}
		}, "the card has no valid signature"},
		"our public key as a secret": {func(c *a2av1.AgentCard) {
			jws := must[*jose.JSONWebSignature](t)(secret.Sign(must[[]byte](t)(canonicalJSON(c))))
			protected, mac, _ := strings.Cut(must[string](t)(jws.DetachedCompactSerialize()), "..")
			c.Signatures = []*a2av1.AgentCardSignature{{Protected: protected, Signature: mac}}
		}, "the card has no valid signature"},
		"a key that the signature brings along": {func(c *a2av1.AgentCard) {
			own := must[jose.Signer](t)(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: ec(t)},
				(&jose.SignerOptions{EmbedJWK: true}).WithHeader("kid", "own").WithHeader("jku", "http://127.0.0.1:1/keys")))
			jws := must[*jose.JSONWebSignature](t)(own.Sign(must[[]byte](t)(canonicalJSON(c))))
			protected, signature, _ := strings.Cut(must[string](t)(jws.DetachedCompactSerialize()), "..")
			c.Signatures = []*a2av1.AgentCardSignature{{Protected: protected, Signature: signature}}
		}, "no signature is from a trusted key"},
		"no sense": {func(c *a2av1.AgentCard) { c.Signatures = []*a2av1.AgentCardSignature{{Protected: "{", Signature: "."}} }, "no valid signature"},
		"too many": {func(c *a2av1.AgentCard) {
			for range maxSignatures {
				c.Signatures = append(c.Signatures, c.Signatures[0])
			}
		}, "at most 16"},
	} {
		t.Run(name, func(t *testing.T) {
			forged := proto.CloneOf(signed(t, s))
			c.change(forged)
			got, _, err := trust(t, s).Verify(forged)
			if err == nil || got != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %v; want %q", got, err, c.want)
			}
		})
	}
	if _, _, err := trust(t, s).Verify(&a2av1.AgentCard{}); !errors.Is(err, ErrUnsigned) {
		t.Error(err)
	}
}

// While a key is replaced, cards carry signatures of both; then those who know
// only the old one refuse.
func TestA_10_KeyRotation(t *testing.T) {
	old, fresh := Key{"2026-10", ec(t)}, Key{"2026-11", ec(t)}
	before, during, after := signer(t, old), signer(t, old, fresh), signer(t, fresh)
	for name, c := range map[string]struct {
		card    *Signer
		trusts  *Signer
		accepts bool
	}{
		"before, the old one":     {before, before, true},
		"before, the new one":     {before, after, false},
		"meanwhile, the old one":  {during, before, true},
		"meanwhile, the new one":  {during, after, true},
		"before, both":            {before, during, true},
		"afterwards, the old one": {after, before, false},
		"afterwards, the new one": {after, after, true},
		"afterwards, both":        {after, during, true},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := trust(t, c.trusts).Verify(signed(t, c.card)); (err == nil) != c.accepts {
				t.Error(err)
			}
		})
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(during.JWKS(), &set); err != nil || len(set.Key("2026-10")) != 1 || len(set.Key("2026-11")) != 1 {
		t.Errorf("%s %v", during.JWKS(), err)
	}
	for _, k := range set.Keys {
		if !k.IsPublic() || k.Use != "sig" || k.Algorithm != "ES256" {
			t.Errorf("%+v", k)
		}
	}
}

func TestA_10_WrongKeys(t *testing.T) {
	p384 := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	block := func(kind string, der []byte, err error) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: must[[]byte](t)(der, err)}))
	}
	pkcs8 := func(key any) string {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		return block("PRIVATE KEY", der, err)
	}
	der, err := x509.MarshalPKIXPublicKey(p384.Public())
	public := block("PUBLIC KEY", der, err)
	ours := ec(t)
	for name, c := range map[string]struct{ file, private, trusted string }{
		"nothing":      {"", "contains no private key", "contains no public key"},
		"garbage":      {"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "cannot be parsed", "contains a private key"},
		"P-384":        {pkcs8(p384), "EC key on P-384", "contains a private key"},
		"public":       {public, "contains a public key", ""},
		"private":      {pkcs8(ours), "", "contains a private key"},
		"encrypted":    {block("ENCRYPTED PRIVATE KEY", []byte("x"), nil), "is encrypted", "contains a private key"},
		"a secret":     {`{"kty": "oct", "k": "c2VjcmV0"}`, "contains no private key", "contains a symmetric key"},
		"no JWK":       {`{"kty": "EC"}`, "contains no private key", "is not a valid JWK"},
		"an empty set": {`{"keys": []}`, "contains no private key", "contains no public key"},
		"no JSON":      {`{`, "contains no private key", "is not valid JSON"},
		"private JWK":  {string(must[[]byte](t)(json.Marshal(jose.JSONWebKey{Key: ours}))), "contains no private key", "contains a private key"},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(err error, want string) {
				t.Helper()
				if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
			_, err := ParsePrivate([]byte(c.file))
			check(err, c.private)
			_, err = ParseTrusted([]byte(c.file))
			check(err, c.trusted)
		})
	}
	for _, keys := range [][]Key{nil, {{"", ours}}, {{"a", ours}, {"a", p384}}, {{"a", p384}}} {
		if _, err := NewSigner(keys, ""); err == nil {
			t.Errorf("%v is taken", keys)
		}
	}
}

// FuzzA_10_SignAndVerify: the signature of any card verifies, and the verified card equals
// the signed one.
func FuzzA_10_SignAndVerify(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte(`{"name": "\u2028<>&", "capabilities": {"extensions": [{"params": {"z": [null, {}, "", 1e-7]}}]}}`))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	s, err := NewSigner([]Key{{"k", key}}, "")
	if err != nil {
		f.Fatal(err)
	}
	trust, err := NewTrust(s.JWKS())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c := &a2av1.AgentCard{}
		if protojson.Unmarshal(text, c) != nil {
			t.Skip()
		}
		canonical, err := canonicalJSON(c)
		if err != nil {
			t.Skip() // no number, or a text that is none
		}
		if err := s.Sign(c); err != nil {
			t.Fatal(err)
		}
		got, _, err := trust.Verify(c)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := canonicalJSON(got); err != nil || !bytes.Equal(canonical, again) {
			t.Errorf("%s\n%s %v", canonical, again, err)
		}
	})
}

// TestT_25_NotificationsAreNoCards: the signature of a notification whose body is a card does not make it
// one that is trusted.
func TestT_25_NotificationsAreNoCards(t *testing.T) {
	s := signer(t, Key{"k1", ec(t)})
	c := signed(t, s)
	payload := must[[]byte](t)(canonicalJSON(c))
	text := must[[]string](t)(s.SignNotification(payload, "https://hooks.example"))[0]
	protected, signature, _ := strings.Cut(text, "..")
	c.Signatures = []*a2av1.AgentCardSignature{{Protected: protected, Signature: signature}}
	if _, _, err := trust(t, s).Verify(c); err == nil {
		t.Error("the card is trusted")
	}
}

// TestT_42_KeysPrintNothing: neither a key nor what holds one prints the private key.
func TestT_42_KeysPrintNothing(t *testing.T) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	k := Key{ID: "2026-11", Private: private}
	s, err := NewSigner([]Key{k}, "")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		fmt.Fprintf(&out, verb+verb+verb+verb, k, []Key{k}, &k, s)
	}
	for _, v := range []any{k, []Key{k}, s} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(b)
	}
	seed := private.Seed()
	for _, shown := range []string{
		strings.Trim(fmt.Sprintf("%d", seed), "[]"), fmt.Sprintf("%x", seed), strings.Trim(strings.TrimPrefix(fmt.Sprintf("%#v", seed), "[]byte"), "{}"), base64.StdEncoding.EncodeToString(seed)[:40],
	} {
		if strings.Contains(out.String(), shown) {
			t.Errorf("%q is in %s", shown, out.String())
		}
	}
	if got := fmt.Sprint(k); got != `signing key "2026-11"` {
		t.Errorf("printed as %q", got)
	}
}
