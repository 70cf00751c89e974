package auth

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"regexp"
	"slices"

	"go.uber.org/zap"
)

// PageClient is the Team Monitor as a public client of an issuer. Its users sign in by authorization
// code with PKCE (RFC 6749, RFC 7636).
type PageClient struct {
	// ClientID is the id that the issuer has given the page. Required.
	ClientID string
	// Scopes are requested; nil means openid.
	Scopes []string
	// Audience and Resource are parameters that some issuers need in order to issue tokens for this server;
	// "" means that they are not sent. RFC 8707 defines Resource.
	Audience, Resource string
}

// SignIn is what the Team Monitor needs to sign in with an issuer.
type SignIn struct {
	Name   string `json:"name"`
	Issuer string `json:"issuer"`
	// AuthorizationEndpoint and TokenEndpoint are "" as long as the issuer could not be read.
	AuthorizationEndpoint string   `json:"authorizationEndpoint,omitempty"`
	TokenEndpoint         string   `json:"tokenEndpoint,omitempty"`
	ClientID              string   `json:"clientId"`
	Scopes                []string `json:"scopes"`
	Audience              string   `json:"audience,omitempty"`
	Resource              string   `json:"resource,omitempty"`
	// NamesIssuer says that the issuer names itself in its answers (RFC 9207).
	NamesIssuer bool `json:"namesIssuer,omitempty"`
}

// SignIns returns the issuers with which users of the Team Monitor can sign in, in the order of the
// configuration.
func (s *Server) SignIns() []SignIn {
	var all []SignIn
	tokens := s.now.Load().tokens
	if tokens == nil {
		return all
	}
	for _, url := range tokens.order {
		i := tokens.issuers[url]
		if i.Page == nil {
			continue
		}
		one := SignIn{
			Name: i.Name, Issuer: i.URL, ClientID: i.Page.ClientID, Scopes: i.Page.Scopes, Audience: i.Page.Audience, Resource: i.Page.Resource,
		}
		if one.Scopes == nil {
			one.Scopes = []string{"openid"}
		}
		if e := i.keys.endpoints.Load(); e != nil {
			one.AuthorizationEndpoint, one.TokenEndpoint, one.NamesIssuer = e.Authorization, e.Token, e.NamesIssuer
		}
		all = append(all, one)
	}
	return all
}

// Origin returns the origin of the token endpoint for a Content-Security-Policy, "" as long as the
// endpoint is not known.
func (s SignIn) Origin() string {
	u, err := url.Parse(s.TokenEndpoint)
	if err != nil || s.TokenEndpoint == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// endpoints is the part of a discovery document that clients need to sign in.
type endpoints struct {
	Authorization    string   `json:"authorization_endpoint"`
	Token            string   `json:"token_endpoint"`
	ChallengeMethods []string `json:"code_challenge_methods_supported"`
	NamesIssuer      bool     `json:"authorization_response_iss_parameter_supported"`
}

// keepEndpoints keeps the endpoints of a discovery document, or err, with which it could not be read. Those that
// were read before stay in use if they cannot be used.
func (k *issuerKeys) keepEndpoints(ctx context.Context, document json.RawMessage, err error) {
	if k.of.Page == nil {
		return
	}
	var found endpoints
	if err == nil {
		err = unmarshalDiscovery(document, &found)
	}
	if err == nil {
		err = k.of.check(found)
	}
	switch {
	case ctx.Err() != nil:
	case err == nil:
		k.pageFails = false
		k.endpoints.Store(&found)
	case !k.pageFails:
		k.pageFails = true
		k.log.Warn("users of the Team Monitor cannot sign in with an issuer; trying again", zap.Error(err))
	}
}

// check returns why the page cannot use endpoints of a discovery document.
func (i Issuer) check(e endpoints) error {
	switch {
	case !i.mayOpen(e.Authorization):
		return errors.New("authorization_endpoint of the discovery document is not an https address of a host with a name or an IPv4 address")
	case !i.mayOpen(e.Token):
		return errors.New("token_endpoint of the discovery document is not an https address of a host with a name or an IPv4 address")
	case e.ChallengeMethods != nil && !slices.Contains(e.ChallengeMethods, "S256"):
		return errors.New("code_challenge_methods_supported of the discovery document does not contain S256")
	}
	return nil
}

// policyHost matches what a Content-Security-Policy can name: it has no IPv6 addresses.
var policyHost = regexp.MustCompile(`^[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?$`)

// mayOpen reports whether the page may open an address that the discovery document names.
func (i Issuer) mayOpen(address string) bool {
	u, err := url.Parse(address)
	return err == nil && i.mayName(address) && u.User == nil && u.Fragment == "" && policyHost.MatchString(u.Host)
}
