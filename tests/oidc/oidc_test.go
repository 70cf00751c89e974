// Package oidc tests callers with tokens of an OpenID Connect provider.
package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
	"golang.org/x/text/language"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/scripted"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// provider is an OpenID Connect provider whose keys a test rotates.
type provider struct {
	*storage.Storage
	url string

	mu     sync.Mutex
	signs  key   // guarded by mu
	listed []key // guarded by mu
}

// key is a key of a provider. It implements op.SigningKey.
type key struct {
	id      string
	private *ecdsa.PrivateKey
}

func newKey(t *testing.T, id string) key {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key{id, private}
}

func (k key) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.ES256 }
func (k key) Key() any                                    { return k.private }
func (k key) ID() string                                  { return k.id }

// publicKey is a key as the provider lists it. It implements op.Key.
type publicKey struct{ key }

func (k publicKey) Algorithm() jose.SignatureAlgorithm { return jose.ES256 }
func (k publicKey) Use() string                        { return "sig" }
func (k publicKey) Key() any                           { return &k.private.PublicKey }

// client gets access tokens that are JSON web tokens.
type client struct{ *storage.Client }

func (client) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeJWT }
func (client) GrantTypes() []oidc.GrantType {
	return []oidc.GrantType{oidc.GrantTypeClientCredentials}
}

func (p *provider) ClientCredentials(_ context.Context, id, secret string) (op.Client, error) {
	return client{storage.WebClient(id, secret)}, nil
}

func (p *provider) ClientCredentialsTokenRequest(_ context.Context, id string, scopes []string) (op.TokenRequest, error) {
	return &oidc.JWTTokenRequest{Subject: id, Audience: []string{"team-server"}, Scopes: scopes}, nil
}

func (p *provider) SigningKey(context.Context) (op.SigningKey, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.signs, nil
}

func (p *provider) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.ES256}, nil
}

func (p *provider) KeySet(context.Context) ([]op.Key, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []op.Key
	for _, k := range p.listed {
		list = append(list, publicKey{k})
	}
	return list, nil
}

// rotate has the provider sign with a key and list keys.
func (p *provider) rotate(signs key, listed ...key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signs, p.listed = signs, listed
}

func newProvider(t *testing.T, k key) *provider {
	t.Helper()
	var handler http.Handler
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	t.Cleanup(s.Close)
	p := &provider{Storage: storage.NewStorage(storage.NewUserStore(s.URL)), url: s.URL, signs: k, listed: []key{k}}
	provided, err := op.NewProvider(&op.Config{CryptoKey: [32]byte{1}, SupportedUILocales: []language.Tag{language.English}}, p, op.StaticIssuer(s.URL), op.WithAllowInsecure())
	if err != nil {
		t.Fatal(err)
	}
	handler = provided
	return p
}

// token gets an access token of a client.
func (p *provider) token(t *testing.T, id string) string {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "scope": {"openid"}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/oauth/token", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(id, "secret")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct {
		AccessToken string `json:"access_token"`
		Error       string `json:"error_description"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || strings.Count(got.AccessToken, ".") != 2 {
		t.Fatalf("%s: %+v, %v", resp.Status, got, err)
	}
	return got.AccessToken
}

// becomes waits until something is done.
func becomes(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// TestT_10_TokensOfAProvider: tokens of a provider are accepted over each binding. While the provider
// replaces its key, tokens of both keys are accepted; when the old key is gone, its tokens are refused
// and streams that were opened with them end, within a minute.
func TestT_10_TokensOfAProvider(t *testing.T) {
	t.Parallel()
	one, two, three := newKey(t, "one"), newKey(t, "two"), newKey(t, "three")
	p := newProvider(t, one)
	asks, err := scripted.New(scripted.Config{ID: "asks", Steps: []*teamv1.ScriptedStep{
		{Do: &teamv1.ScriptedStep_Ask{Ask: "which?"}}, {Do: &teamv1.ScriptedStep_Text{Text: "{{answer}}"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	serve := func(audience string) rig.Target {
		return rig.Serve(t, server.Config{
			Agent:    asks,
			Settings: &teamv1.ServerSettings{Auth: &teamv1.AuthConfig{ApiKeys: []*teamv1.ApiKey{rig.Key("acme", "ann")}, Jwt: []*teamv1.JwtIssuer{{Name: "corp", Issuer: p.url, Audiences: []string{audience}, Account: "acme"}}}},
		})
	}
	target, other := serve("team-server"), serve("another")
	first := p.token(t, "robot")
	with := func(at rig.Target, token string) rig.Target {
		at.Key = token
		return at
	}
	code := func(token string) string {
		_, err := rig.Clients(t, with(target, token))[1].List(t.Context(), &a2av1.ListTasksRequest{})
		if f := rig.Fault(err); f != nil {
			return f.Code
		}
		return "OK"
	}
	becomes(t, "the token is not accepted", func() bool { return code(first) == "OK" })
	ended := make(chan error, 3)
	streams := 0
	rig.Each(t, with(target, first), func(t *testing.T, c rig.Client) {
		resp, err := c.Send(t.Context(), rig.Text("", "m-"+c.Binding(), "x"))
		if err != nil {
			t.Fatal(err)
		}
		streams++
		begun := make(chan struct{}, 1)
		go func() {
			for u, err := range c.Subscribe(context.WithoutCancel(t.Context()), &a2av1.SubscribeToTaskRequest{Id: resp.GetTask().GetId()}, 0) {
				if err != nil {
					ended <- err
					return
				}
				if u.GetTask() != nil {
					begun <- struct{}{}
				}
			}
			ended <- nil
		}()
		<-begun
		stranger := rig.Fault(func() error {
			_, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: resp.GetTask().GetId()})
			return err
		}())
		if stranger != nil {
			t.Errorf("the owner's task: %v", stranger)
		}
	})
	rig.Each(t, with(other, first), func(t *testing.T, c rig.Client) {
		becomes(t, "a token for another audience is not refused", func() bool {
			_, err := c.List(t.Context(), &a2av1.ListTasksRequest{})
			return rig.Fault(err).Code == "Unauthenticated"
		})
	})

	p.rotate(two, one, two)
	second := p.token(t, "robot")
	becomes(t, "a token of the new key is not accepted", func() bool {
		if got := code(first); got != "OK" {
			t.Fatalf("a token of the old key: %s", got)
		}
		return code(second) == "OK"
	})
	if len(ended) > 0 {
		t.Errorf("a stream ended while its key was listed: %v", <-ended)
	}

	p.rotate(three, two)
	unknown := p.token(t, "robot") // its key is not listed, so the server looks for it
	p.rotate(two, two)
	began := time.Now()
	becomes(t, "a token of the old key is accepted on", func() bool {
		code(unknown)
		return code(first) != "OK"
	})
	// Where unknown tokens come from often, refused ones must wait, too.
	becomes(t, "a token of the old key is not refused as such", func() bool { return code(first) == "Unauthenticated" })
	for range streams {
		if f := rig.Fault(<-ended); f == nil || f.Code != "Unauthenticated" {
			t.Errorf("a stream ended with %v", f)
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	if got := code(second); got != "OK" {
		t.Errorf("a token of the new key afterwards: %s", got)
	}
}
