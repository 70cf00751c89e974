package auth

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
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
	keys   []issuerKey
	listed int       // the number of keys, at the start of keys, that the issuer listed last
	read   time.Time // when that was
}

// issuerKey is a public key of an issuer.
type issuerKey struct {
	jose.JSONWebKey
	print  string // its thumbprint
	missed int    // how many regular fetches have not listed it, since it was last listed
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
func addresses(i Issuer) (all []string) {
	for _, address := range []string{i.URL, i.JWKSURL} {
		if u, err := url.Parse(address); err == nil && u.Hostname() != "" {
			all = append(all, egress.HostPort(u))
		}
	}
	return all
}

// refused returns the error for a connection to an address that only the discovery document names.
func refused(address string, _ error) error {
	return fmt.Errorf("the discovery document names %s, which is not public; set jwks_url", address)
}

// find returns the keys with an id that fit an algorithm; without an id, the one that fits if the issuer
// lists only one. ok is false until keys were fetched, and while that was too long ago.
func (k *issuerKeys) find(kid, alg string) (keys []issuerKey, ok bool) {
	known := k.known.Load()
	if known == nil || time.Since(known.read) > maxStale {
		return nil, false
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
	return keys, true
}

// fits reports whether a key may verify signatures of an algorithm.
func fits(k issuerKey, alg string) bool {
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
// maxStale.
func (k *issuerKeys) run(ctx context.Context) {
	defer k.http.CloseIdleConnections()
	due := time.Now()       // when the next regular fetch is; those before it are due to unknown key ids, and do not put it off
	var pause time.Duration // after the last fetch, which failed; else 0
	for {
		regular := !time.Now().Before(due)
		list, err := k.fetch(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			k.use(list, regular)
			if pause = 0; regular {
				due = time.Now().Add(k.every)
			}
		case pause == 0:
			k.log.Warn("the keys of an issuer of tokens cannot be read; trying again", zap.Error(err))
			pause = time.Second
		default:
			pause = min(2*pause, k.every)
		}
		k.sleep(ctx, cmp.Or(pause, max(time.Until(due), 0)))
	}
}

// use puts the keys of list into use. A key that the issuer no longer lists is used until it is missing in a second
// regular fetch.
func (k *issuerKeys) use(list []issuerKey, regular bool) {
	set := &keySet{keys: list, listed: len(list), read: time.Now()}
	if known := k.known.Load(); known != nil {
		for _, old := range known.keys {
			if regular {
				old.missed++
			}
			isListed := slices.ContainsFunc(list, func(one issuerKey) bool { return one.KeyID == old.KeyID && one.print == old.print })
			if !isListed && old.missed < 2 && len(set.keys) < len(list)+maxIssuerKeys {
				set.keys = append(set.keys, old)
			}
		}
	}
	k.known.Store(set)
}

// sleep waits, at least for again, until a key id is unknown, the time is over, or ctx has ended.
func (k *issuerKeys) sleep(ctx context.Context, wait time.Duration) {
	least := min(k.again, wait)
	select {
	case <-ctx.Done():
	case <-time.After(least):
	}
	select {
	case <-ctx.Done():
	case <-k.wake:
	case <-time.After(wait - least):
	}
}

// fetch reads the keys, and the endpoints with which users of the page sign in, if there are any.
func (k *issuerKeys) fetch(ctx context.Context) ([]issuerKey, error) {
	address := k.of.JWKSURL
	if address == "" || k.of.Page != nil {
		found, document, err := k.discover(ctx)
		k.keepEndpoints(ctx, document, err)
		switch {
		case address != "":
		case err != nil:
			return nil, err
		case !k.of.mayName(found):
			return nil, errors.New("jwks_uri of the discovery document is not an https address")
		default:
			address = found
		}
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := k.get(ctx, address, &set); err != nil {
		return nil, err
	}
	var keys []issuerKey
	for _, raw := range set.Keys {
		var one jose.JSONWebKey
		if json.Unmarshal(raw, &one) != nil || !one.Valid() || !one.IsPublic() || len(keys) >= maxIssuerKeys {
			continue // it may be of a kind that is unknown here
		}
		if sum, err := one.Thumbprint(crypto.SHA256); err == nil {
			keys = append(keys, issuerKey{JSONWebKey: one, print: base64.RawURLEncoding.EncodeToString(sum)})
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

// discover reads the discovery document of the issuer, and returns the address of the keys that it names.
func (k *issuerKeys) discover(ctx context.Context) (keys string, document json.RawMessage, err error) {
	if err := k.get(ctx, strings.TrimSuffix(k.of.URL, "/")+"/.well-known/openid-configuration", &document); err != nil {
		return "", nil, err
	}
	var found struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := unmarshalDiscovery(document, &found); err != nil {
		return "", nil, err
	}
	if found.Issuer != k.of.URL {
		return "", nil, fmt.Errorf("the discovery document is of the issuer %.200q, not of %q", found.Issuer, k.of.URL)
	}
	return found.Keys, document, nil
}

// unmarshalDiscovery decodes a part of a discovery document.
func unmarshalDiscovery(document json.RawMessage, into any) error {
	if err := json.Unmarshal(document, into); err != nil {
		return fmt.Errorf("the discovery document is not the expected JSON: %w", err)
	}
	return nil
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
