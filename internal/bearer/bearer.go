// Package bearer gets the bearer tokens of outgoing calls from an OAuth 2 server, as a client with credentials of its own
// (RFC 6749, section 4.4).
package bearer

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

// Config configures a Source.
type Config struct {
	// TokenURL is the address of the token endpoint. Required.
	TokenURL string
	// ClientID and ClientSecret are the credentials of the client. ClientID is required.
	ClientID     string
	ClientSecret secret.Secret
	// Scopes are what the tokens must allow; nil leaves that to the server.
	Scopes []string
	// Params are further parameters of the request, such as audience or resource.
	Params map[string]string
	// HTTPClient makes the requests; nil means a new client.
	HTTPClient *http.Client
}

// Source returns tokens. It keeps a token until shortly before it expires, or until Discard. It is safe for concurrent use.
type Source struct {
	config clientcredentials.Config
	http   *http.Client
	turn   chan struct{} // has room for one: who has put something in may use token
	token  *oauth2.Token
}

// New returns a Source.
func New(c Config) *Source {
	params := url.Values{}
	for name, value := range c.Params {
		params.Set(name, value)
	}
	s := &Source{http: c.HTTPClient, turn: make(chan struct{}, 1), config: clientcredentials.Config{
		ClientID: c.ClientID, ClientSecret: c.ClientSecret.Reveal(), TokenURL: c.TokenURL, Scopes: c.Scopes, EndpointParams: params,
	}}
	if s.http == nil {
		s.http = &http.Client{}
	}
	return s
}

// timeout is the time limit of a request for a token.
const timeout = 10 * time.Second

// Token returns a token that is valid now. The error is an *agent.Error: nothing was called with the token.
func (s *Source) Token(ctx context.Context) (secret.Secret, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return secret.Secret{}, context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	if !s.token.Valid() {
		asking, cancel := context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, s.http), timeout)
		defer cancel()
		token, err := s.config.Token(asking)
		if err != nil {
			return secret.Secret{}, s.failed(ctx, err)
		}
		s.token = token
	}
	return secret.New(s.token.AccessToken), nil
}

// Discard has the next Token ask for a new token if used is still the current one, because a server has refused it.
func (s *Source) Discard(used secret.Secret) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.token != nil && s.token.AccessToken == used.Reveal() {
		s.token = nil
	}
}

// failed returns the error of a request for a token. It names the host of the endpoint, and no credentials.
func (s *Source) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	host := s.config.TokenURL
	if u, err := url.Parse(host); err == nil {
		host = u.Host
	}
	var refused *oauth2.RetrieveError
	var e *agent.Error
	switch {
	case errors.As(err, &refused) && refused.Response.StatusCode < http.StatusInternalServerError && refused.Response.StatusCode != http.StatusTooManyRequests:
		e = agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable,
			"the token endpoint %s refused the client (HTTP %d %s); check client_id, client_secret and scopes of oauth", host, refused.Response.StatusCode, refused.ErrorCode)
	case errors.As(err, &refused):
		e = agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "the token endpoint %s failed (HTTP %d); try again later", host, refused.Response.StatusCode)
		e.Retry = true
	default:
		e = agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "the token endpoint %s gave no token; check token_url of oauth, and try again", host)
		e.Retry = true
	}
	e.Fresh = true
	var at *url.Error
	if errors.As(err, &at) {
		return e.Because(at.Err)
	}
	return e
}
