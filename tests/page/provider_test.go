package page

import (
	"context"
	"html/template"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
	"golang.org/x/text/language"
)

// provider is an OpenID Connect provider with a form for the user test-user2, on which the
// user may also refuse. Its access tokens have the client id as their audience.
type provider struct {
	*storage.Storage
	url string

	mu       sync.Mutex
	redirect string        // the address that the client has registered; guarded by mu
	lifetime time.Duration // of access tokens; guarded by mu
	issued   int           // the number of access tokens; guarded by mu
	renewed  int           // how many of them for a refresh token; guarded by mu
	revoked  bool          // refuses refresh tokens; guarded by mu
}

const clientID = "team-monitor"

// pageClient is the page as a public client. It gets access tokens that are JSON web tokens.
type pageClient struct {
	*storage.Client
	redirect string
}

func (c pageClient) RedirectURIs() []string            { return []string{c.redirect} }
func (pageClient) ApplicationType() op.ApplicationType { return op.ApplicationTypeUserAgent }
func (pageClient) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeJWT }
func (pageClient) DevMode() bool                       { return true } // allows http
func (pageClient) LoginURL(id string) string           { return "/login?id=" + id }

// GetClientByClientID implements op.Storage.
func (p *provider) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id != clientID {
		return nil, oidc.ErrInvalidClient()
	}
	return pageClient{storage.NativeClient(id), p.redirect}, nil
}

// CreateAccessToken implements op.Storage.
func (p *provider) CreateAccessToken(ctx context.Context, r op.TokenRequest) (string, time.Time, error) {
	id, _, err := p.Storage.CreateAccessToken(ctx, r)
	return id, p.expiry(false), err
}

// CreateAccessAndRefreshTokens implements op.Storage.
func (p *provider) CreateAccessAndRefreshTokens(ctx context.Context, r op.TokenRequest, current string) (id, refresh string, _ time.Time, err error) {
	id, refresh, _, err = p.Storage.CreateAccessAndRefreshTokens(ctx, r, current)
	return id, refresh, p.expiry(current != ""), err
}

func (p *provider) expiry(renewed bool) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.issued++
	if renewed {
		p.renewed++
	}
	return time.Now().Add(p.lifetime)
}

// TokenRequestByRefreshToken implements op.Storage.
func (p *provider) TokenRequestByRefreshToken(ctx context.Context, token string) (op.RefreshTokenRequest, error) {
	p.mu.Lock()
	revoked := p.revoked
	p.mu.Unlock()
	if revoked {
		return nil, op.ErrInvalidRefreshToken
	}
	return p.Storage.TokenRequestByRefreshToken(ctx, token)
}

// set changes the provider.
func (p *provider) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// count returns how many access tokens were issued, and how many of them for refresh tokens.
func (p *provider) count() (issued, renewed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.issued, p.renewed
}

var loginForm = template.Must(template.New("").Parse(`<!doctype html><title>Provider</title>
<form method="post"><input type="hidden" name="id" value="{{.}}">
<input id="name" name="name"><input id="password" name="password" type="password">
<button id="login">Log in</button><button id="refuse" name="refuse" value="yes">Refuse</button></form>`))

// newProvider starts a provider on an address, "" for any.
func newProvider(t *testing.T, address string) *provider {
	t.Helper()
	var handler http.Handler
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	if address != "" {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Listener.Close()
		s.Listener = l
	}
	url := "http://" + s.Listener.Addr().String()
	p := &provider{Storage: storage.NewStorage(storage.NewUserStore(url)), url: url, lifetime: time.Hour}
	config := &op.Config{
		CryptoKey: [32]byte{1}, CodeMethodS256: true, GrantTypeRefreshToken: true, SupportedUILocales: []language.Tag{language.English},
	}
	provided, err := op.NewProvider(config, p, op.StaticIssuer(url), op.WithAllowInsecure())
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", provided)
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, r *http.Request) {
		if err := loginForm.Execute(w, r.FormValue("id")); err != nil {
			t.Error(err)
		}
	})
	mux.Handle("POST /login", op.NewIssuerInterceptor(provided.IssuerFromRequest).HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.FormValue("id")
		if r.FormValue("refuse") != "" {
			req, err := p.AuthRequestByID(r.Context(), id)
			if err != nil {
				t.Error(err)
				return
			}
			op.AuthRequestError(w, r, req, oidc.ErrAccessDenied().WithDescription("You <b>refused</b>."), provided)
			return
		}
		if err := p.CheckUsernamePassword(r.FormValue("name"), r.FormValue("password"), id); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		http.Redirect(w, r, op.AuthCallbackURL(provided)(r.Context(), id), http.StatusFound)
	}))
	handler = mux
	s.Start()
	t.Cleanup(s.Close)
	return p
}
