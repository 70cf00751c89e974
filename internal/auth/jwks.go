package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/egress"
)

const (
	// fetchEvery is how often the keys of an issuer are fetched.
	fetchEvery = 30 * time.Second
	// fetchAgain is the shortest time between two fetches, which unknown key ids cause.
	fetchAgain = 5 * time.Second
	// fetchTimeout is the timeout of a request to an issuer.
	fetchTimeout = 10 * time.Second
	// maxDocument is the maximum size of a document of an issuer, and maxIssuerKeys the number of
	// keys that are used.
	maxDocument   = 256 << 10
	maxIssuerKeys = 64
	// minRSA is the smallest RSA key that is used, in bits.
	minRSA = 2048
)

// issuerKeys are the public keys of an issuer, which are fetched in the background. find is safe for
// concurrent use.
type issuerKeys struct {
	of    Issuer
	http  *http.Client
	log   *zap.Logger
	known atomic.Pointer[[]jose.JSONWebKey] // nil before the first fetch
	wake  chan struct{}                     // holds one signal: a key id was unknown
	every time.Duration
	again time.Duration
}

// newIssuerKeys returns the keys of an issuer, which run fetches.
func newIssuerKeys(i Issuer, log *zap.Logger) (*issuerKeys, error) {
	own, err := egress.New(egress.Config{CAFile: i.CAFile})
	if err != nil {
		return nil, err
	}
	guard, err := egress.NewGuard()
	if err != nil {
		return nil, err
	}
	others, err := egress.New(egress.Config{CAFile: i.CAFile, Allow: guard.Allow})
	if err != nil {
		return nil, err
	}
	out := &http.Client{
		Transport:     egress.NewRoute(egress.RouteConfig{Addresses: addresses(i), Own: own, Others: others, Refused: refused}).Transport(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &issuerKeys{of: i, http: out, log: log.With(zap.String("issuer", i.Name)), wake: make(chan struct{}, 1), every: fetchEvery, again: fetchAgain}, nil
}

// addresses returns HOST:PORT of the addresses that the operator wrote for an issuer. The discovery
// document may name another one for the keys.
func addresses(i Issuer) []string {
	var all []string
	for _, address := range []string{i.URL, i.JWKSURL} {
		u, err := url.Parse(address)
		if err != nil || u.Hostname() == "" {
			continue
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		all = append(all, net.JoinHostPort(u.Hostname(), port))
	}
	return all
}

// refused returns the error for a connection to an address that only the discovery document names.
func refused(address string, _ error) error {
	return fmt.Errorf("the discovery document names %s, which is not public; set jwks_url", address)
}

// find returns the keys with an id that fit an algorithm; without an id, all that fit. fetched is
// false until keys were fetched once.
func (k *issuerKeys) find(kid, alg string) (keys []any, fetched bool) {
	known := k.known.Load()
	if known == nil {
		return nil, false
	}
	for _, one := range *known {
		if (kid == "" || one.KeyID == kid) && fits(one, alg) {
			keys = append(keys, one.Key)
		}
	}
	if len(keys) == 0 {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
	return keys, true
}

// fits reports whether a key may verify signatures of an algorithm.
func fits(k jose.JSONWebKey, alg string) bool {
	if k.Algorithm != "" && k.Algorithm != alg || k.Use != "" && k.Use != "sig" {
		return false
	}
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		return (strings.HasPrefix(alg, "RS") || strings.HasPrefix(alg, "PS")) && key.N.BitLen() >= minRSA
	case *ecdsa.PublicKey:
		return map[string]int{"ES256": 256, "ES384": 384, "ES512": 521}[alg] == key.Curve.Params().BitSize
	case ed25519.PublicKey:
		return alg == "EdDSA"
	}
	return false // also secrets, which are no public keys
}

// run fetches the keys until ctx ends. A failed fetch is repeated, and the keys before stay in use. A
// key that the issuer no longer lists is used until it is missing for the second time.
func (k *issuerKeys) run(ctx context.Context) {
	defer k.http.CloseIdleConnections()
	pause, failing := time.Second, false
	var before []jose.JSONWebKey // what the last fetch listed
	for {
		list, err := k.fetch(ctx)
		wait := k.every
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				k.log.Warn("the keys of an issuer of tokens cannot be read; trying again", zap.Error(err))
			}
			wait, pause, failing = pause, min(2*pause, k.every), true
		default:
			both := merged(list, before)
			k.known.Store(&both)
			before, pause, failing = list, time.Second, false
		}
		if !k.sleep(ctx, wait) {
			return
		}
	}
}

// sleep waits, at least fetchAgain and then until a key id is unknown or the time is over. It returns
// false if ctx has ended.
func (k *issuerKeys) sleep(ctx context.Context, wait time.Duration) bool {
	least := min(k.again, wait)
	for _, part := range []struct {
		time time.Duration
		wake <-chan struct{}
	}{{least, nil}, {wait - least, k.wake}} {
		timer := time.NewTimer(part.time)
		select {
		case <-timer.C:
		case <-part.wake:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
	}
	return true
}

// merged returns the keys of list, and those of before that are not in it.
func merged(list, before []jose.JSONWebKey) []jose.JSONWebKey {
	has := func(k jose.JSONWebKey) bool {
		for _, one := range list {
			if one.KeyID == k.KeyID {
				return true
			}
		}
		return false
	}
	all := list[:len(list):len(list)]
	for _, k := range before {
		if !has(k) {
			all = append(all, k)
		}
	}
	return all
}

// fetch reads the keys.
func (k *issuerKeys) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	address := k.of.JWKSURL
	if address == "" {
		var found struct {
			Issuer  string `json:"issuer"`
			JWKSURI string `json:"jwks_uri"`
		}
		if err := k.get(ctx, strings.TrimSuffix(k.of.URL, "/")+"/.well-known/openid-configuration", &found); err != nil {
			return nil, err
		}
		if found.Issuer != k.of.URL {
			return nil, fmt.Errorf("the discovery document is of the issuer %.200q, not of %q", found.Issuer, k.of.URL)
		}
		if !k.of.mayName(found.JWKSURI) {
			return nil, errors.New("jwks_uri of the discovery document is not an https address")
		}
		address = found.JWKSURI
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := k.get(ctx, address, &set); err != nil {
		return nil, err
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var one jose.JSONWebKey
		if json.Unmarshal(raw, &one) == nil && one.Valid() && one.IsPublic() && len(keys) < maxIssuerKeys { // others may be of kinds that are unknown here
			keys = append(keys, one)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("the issuer lists no public keys")
	}
	return keys, nil
}

// mayName reports whether the discovery document may name an address for the keys, so that they cannot
// be changed on the way: over https, or on this machine if the issuer is there.
func (i Issuer) mayName(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return false
	}
	of, err := url.Parse(i.URL)
	return u.Scheme == "https" || u.Scheme == "http" && err == nil && egress.IsLoopback(of.Hostname()) && egress.IsLoopback(u.Hostname())
}

// get reads a JSON document.
func (k *issuerKeys) get(ctx context.Context, address string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return errors.New("not an address")
	}
	req.Header.Set("Accept", "application/json")
	resp, err := k.http.Do(req)
	if err != nil {
		return egress.WithoutURL(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	body, err := egress.ReadBody(resp.Body, maxDocument)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("the document is not the expected JSON: %w", err)
	}
	return nil
}
