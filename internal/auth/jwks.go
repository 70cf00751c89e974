package auth

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/egress"
)

const (
	// fetchEvery is how often the keys of an issuer are fetched.
	fetchEvery = 25 * time.Second
	// fetchAgain is the shortest time between two fetches, which unknown key ids cause.
	fetchAgain = 5 * time.Second
	// fetchTimeout is the timeout of a request to an issuer.
	fetchTimeout = 10 * time.Second
	// maxDocument is the maximum size of a document of an issuer, and maxIssuerKeys the number of
	// keys that are used.
	maxDocument   = 256 << 10
	maxIssuerKeys = 64
	// minRSA and maxRSA are the sizes of the smallest and of the largest RSA key that is used, in bits.
	minRSA, maxRSA = 2048, 8192
	// maxStale is how long keys are used after they were last fetched, if the issuer fails.
	maxStale = time.Hour
)

// issuerKeys are the public keys of an issuer, which are fetched in the background. find is safe for
// concurrent use.
type issuerKeys struct {
	of        Issuer
	http      *http.Client
	log       *zap.Logger
	known     atomic.Pointer[keySet]    // nil before the first fetch
	last      atomic.Int64              // when keys were last fetched, in Unix seconds
	wake      chan struct{}             // holds one signal: a key id was unknown
	endpoints atomic.Pointer[endpoints] // nil before they were first read
	pageFails bool                      // endpoints could not be read last; only run uses it
	every     time.Duration
	again     time.Duration
	ca        []byte // the content of CAFile
}

// sameSource reports whether other is fetched from the same addresses, with the same authorities, for the same page.
func (k *issuerKeys) sameSource(other *issuerKeys) bool {
	a, b := k.of, other.of
	return a.Name == b.Name && a.URL == b.URL && a.JWKSURL == b.JWKSURL && bytes.Equal(k.ca, other.ca) && reflect.DeepEqual(a.Page, b.Page)
}

// keySet are keys of an issuer. It is not modified.
type keySet struct {
	keys   []jose.JSONWebKey
	listed int // the number of keys, at the start of keys, that the issuer listed last
}

// equal reports whether two sets have the same keys.
func (s *keySet) equal(other *keySet) bool {
	return other != nil && s.listed == other.listed && slices.EqualFunc(s.keys, other.keys, sameKey)
}

// sameKey reports whether two keys with the same id and use are the same.
func sameKey(a, b jose.JSONWebKey) bool {
	one, err := a.Thumbprint(crypto.SHA256)
	other, err2 := b.Thumbprint(crypto.SHA256)
	return err == nil && err2 == nil && bytes.Equal(one, other) && a.KeyID == b.KeyID && a.Algorithm == b.Algorithm && a.Use == b.Use
}

// thumbprint returns the thumbprint of a key.
func thumbprint(k jose.JSONWebKey) string {
	sum, _ := k.Thumbprint(crypto.SHA256) // keys of the kinds that fit have one
	return base64.RawURLEncoding.EncodeToString(sum)
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
	var ca []byte
	if i.CAFile != "" {
		if ca, err = os.ReadFile(i.CAFile); err != nil {
			return nil, fmt.Errorf("reading CA file: %w", err)
		}
	}
	out := &http.Client{
		Transport:     egress.NewRoute(egress.RouteConfig{Addresses: addresses(i), Own: own, Others: others, Refused: refused}).Transport(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &issuerKeys{of: i, http: out, log: log.With(zap.String("issuer", i.Name)), wake: make(chan struct{}, 1), every: fetchEvery, again: fetchAgain, ca: ca}, nil
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

// find returns the keys with an id that fit an algorithm; without an id, the one that fits if the issuer
// lists only one. The keys are part of a set, which is nil until keys were fetched, and while that
// was too long ago.
func (k *issuerKeys) find(kid, alg string) (keys []jose.JSONWebKey, of *keySet) {
	known := k.known.Load()
	if known == nil || time.Since(time.Unix(k.last.Load(), 0)) > maxStale {
		return nil, nil
	}
	fitting := 0 // of those that are listed
	for i, one := range known.keys {
		if !fits(one, alg) {
			continue
		}
		if i < known.listed {
			fitting++
		}
		if kid == "" || one.KeyID == kid {
			keys = append(keys, one)
		}
	}
	if kid == "" && fitting > 1 {
		keys = nil // each would cost a verification
	}
	if len(keys) == 0 {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
	return keys, known
}

// fits reports whether a key may verify signatures of an algorithm.
func fits(k jose.JSONWebKey, alg string) bool {
	if k.Algorithm != "" && k.Algorithm != alg || k.Use != "" && k.Use != "sig" {
		return false
	}
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		return (strings.HasPrefix(alg, "RS") || strings.HasPrefix(alg, "PS")) && key.N.BitLen() >= minRSA && key.N.BitLen() <= maxRSA
	case *ecdsa.PublicKey:
		return map[string]int{"ES256": 256, "ES384": 384, "ES512": 521}[alg] == key.Curve.Params().BitSize
	case ed25519.PublicKey:
		return alg == "EdDSA"
	}
	return false // also secrets, which are no public keys
}

// run fetches the keys until ctx ends. A failed fetch is repeated, and the keys before stay in use for
// maxStale. A key that the issuer no longer lists is used until it is missing for the second time in
// fetches that no unknown key id has caused.
func (k *issuerKeys) run(ctx context.Context) {
	defer k.http.CloseIdleConnections()
	pause, failing, woken := time.Second, false, false
	due := time.Now()            // when the next regular fetch is due
	var before []jose.JSONWebKey // what the last regular fetch listed, and all fetches since
	for {
		list, err := k.fetch(ctx)
		var wait time.Duration
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				k.log.Warn("the keys of an issuer of tokens cannot be read; trying again", zap.Error(err))
			}
			wait, pause, failing = pause, min(2*pause, k.every), true
		default:
			k.use(list, before, woken)
			if woken {
				before = merged(list, before)
			} else {
				before, due = list, time.Now().Add(k.every)
			}
			wait, pause, failing = max(time.Until(due), 0), time.Second, false
		}
		var going bool
		if woken, going = k.sleep(ctx, wait); !going {
			return
		}
		woken = woken && time.Now().Before(due) // unknown key ids do not put off regular fetches
	}
}

// use puts keys into use: those of list, of before, and if a key id caused the fetch, those in use.
func (k *issuerKeys) use(list, before []jose.JSONWebKey, woken bool) {
	known := k.known.Load()
	set := &keySet{keys: merged(list, before), listed: len(list)}
	if woken && known != nil {
		set.keys = merged(set.keys, known.keys)
	}
	k.last.Store(time.Now().Unix())
	if !set.equal(known) { // tokens that were verified stay so
		k.known.Store(set)
	}
}

// sleep waits, at least fetchAgain and then until a key id is unknown, which woken reports, or the time is
// over. going is false if ctx has ended.
func (k *issuerKeys) sleep(ctx context.Context, wait time.Duration) (woken, going bool) {
	least := min(k.again, wait)
	for _, part := range []struct {
		time time.Duration
		wake <-chan struct{}
	}{{least, nil}, {wait - least, k.wake}} {
		timer := time.NewTimer(part.time)
		select {
		case <-timer.C:
		case <-part.wake:
			woken = true
		case <-ctx.Done():
			timer.Stop()
			return false, false
		}
		timer.Stop()
	}
	return woken, true
}

// merged returns the keys of list, and those of before that are not in it, maxIssuerKeys more at most.
func merged(list, before []jose.JSONWebKey) []jose.JSONWebKey {
	all := list[:len(list):len(list)]
	for _, k := range before {
		if len(all) < len(list)+maxIssuerKeys && !slices.ContainsFunc(list, func(one jose.JSONWebKey) bool { return sameKey(one, k) }) {
			all = append(all, k)
		}
	}
	return all
}

// fetch reads the keys, and the endpoints with which users of the page sign in, if there are any.
func (k *issuerKeys) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	address := k.of.JWKSURL
	if address == "" || k.of.Page != nil {
		document, err := k.discover(ctx)
		k.keepEndpoints(ctx, document, err)
		switch {
		case address != "":
		case err != nil:
			return nil, err
		default:
			if address, err = k.of.addressOfKeys(document); err != nil {
				return nil, err
			}
		}
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

// CheckIssuer reads the keys of an issuer once, as a server does, and returns their number. Without an address for
// the keys it reads the discovery document first.
func CheckIssuer(ctx context.Context, i Issuer) (keys int, err error) {
	k, err := newIssuerKeys(i, zap.NewNop())
	if err != nil {
		return 0, err
	}
	defer k.http.CloseIdleConnections()
	list, err := k.fetch(ctx)
	return len(list), err
}

// discover reads the discovery document of the issuer.
func (k *issuerKeys) discover(ctx context.Context) (document json.RawMessage, err error) {
	if err := k.get(ctx, strings.TrimSuffix(k.of.URL, "/")+"/.well-known/openid-configuration", &document); err != nil {
		return nil, err
	}
	var of struct {
		Issuer string `json:"issuer"`
	}
	if err := unmarshalDiscovery(document, &of); err != nil {
		return nil, err
	}
	if of.Issuer != k.of.URL {
		return nil, fmt.Errorf("the discovery document is of the issuer %.200q, not of %q", of.Issuer, k.of.URL)
	}
	return document, nil
}

// unmarshalDiscovery decodes a part of a discovery document.
func unmarshalDiscovery(document json.RawMessage, into any) error {
	if err := json.Unmarshal(document, into); err != nil {
		return fmt.Errorf("the discovery document is not the expected JSON: %w", err)
	}
	return nil
}

// addressOfKeys returns the address of the keys that a discovery document names.
func (i Issuer) addressOfKeys(document json.RawMessage) (string, error) {
	var found struct {
		JWKSURI string `json:"jwks_uri"`
	}
	if err := unmarshalDiscovery(document, &found); err != nil {
		return "", err
	}
	if !i.mayName(found.JWKSURI) {
		return "", errors.New("jwks_uri of the discovery document is not an https address")
	}
	return found.JWKSURI, nil
}

// mayName reports whether the discovery document may name an address, so that what is read or sent
// there cannot be changed on the way: over https, or on this machine if the issuer is there.
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
