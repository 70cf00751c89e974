package cardsign

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"

	"github.com/go-jose/go-jose/v4"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// maxSigned is the maximum number of cards whose signatures are cached.
const maxSigned = 256

// Signer signs cards with all its keys. While a key is being replaced, a card has
// signatures by the old key and by the new one. Signer is safe for concurrent use.
type Signer struct {
	signers []jose.Signer
	keys    []opaque
	public  []byte

	mu     sync.Mutex
	signed map[[sha256.Size]byte][]*a2av1.AgentCardSignature // by the digest of the canonical form; guarded by mu
}

// NewSigner returns a Signer. jku is the URL of the public keys that signatures name; ""
// for none. The error says which key is unsuitable, or that an ID is missing or used twice.
func NewSigner(keys []Key, jku string) (*Signer, error) {
	if len(keys) == 0 {
		return nil, errors.New("no signing key is configured")
	}
	s := &Signer{signed: map[[sha256.Size]byte][]*a2av1.AgentCardSignature{}}
	set, ids := jose.JSONWebKeySet{}, map[string]bool{}
	for _, k := range keys {
		if k.ID == "" || ids[k.ID] {
			return nil, fmt.Errorf("key id %q is empty or used twice", k.ID)
		}
		ids[k.ID] = true
		alg, err := algorithm(k.Private)
		if err != nil {
			return nil, fmt.Errorf("key %q %w", k.ID, err)
		}
		o := opaque{private: &k.Private, public: jose.JSONWebKey{Key: k.Private.Public(), KeyID: k.ID, Algorithm: string(alg), Use: "sig"}}
		options := (&jose.SignerOptions{}).WithType("JOSE")
		if jku != "" {
			options = options.WithHeader("jku", jku)
		}
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: o}, options)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", k.ID, err)
		}
		s.signers, s.keys, set.Keys = append(s.signers, signer), append(s.keys, o), append(set.Keys, o.public)
	}
	var err error
	s.public, err = json.Marshal(set)
	return s, err
}

// JWKS returns the public keys as a JWK set in JSON.
func (s *Signer) JWKS() []byte { return bytes.Clone(s.public) }

// Sign replaces the signatures of a card: one by each key over the canonical form and, if
// the compact form differs, one by each key over that, for verifiers that drop empty
// values.
func (s *Signer) Sign(card *a2av1.AgentCard) error {
	canonical, err := canonicalJSON(card)
	if err != nil {
		return err
	}
	name := sha256.Sum256(canonical)
	s.mu.Lock()
	list, ok := s.signed[name]
	s.mu.Unlock()
	if !ok {
		if list, err = s.sign(card, canonical); err != nil {
			return err
		}
		s.remember(name, list)
	}
	card.Signatures = list
	return nil
}

func (s *Signer) sign(card *a2av1.AgentCard, canonical []byte) ([]*a2av1.AgentCardSignature, error) {
	compact, err := compactJSON(card)
	if err != nil {
		return nil, err
	}
	payloads := [][]byte{canonical}
	if !bytes.Equal(canonical, compact) {
		payloads = append(payloads, compact)
	}
	var list []*a2av1.AgentCardSignature
	for _, payload := range payloads {
		for _, signer := range s.signers {
			jws, err := signer.Sign(payload)
			if err != nil {
				return nil, fmt.Errorf("signing a card: %w", err)
			}
			text, err := jws.DetachedCompactSerialize()
			if err != nil {
				return nil, fmt.Errorf("signing a card: %w", err)
			}
			protected, signature, _ := strings.Cut(text, "..")
			list = append(list, &a2av1.AgentCardSignature{Protected: protected, Signature: signature})
		}
	}
	return list, nil
}

// notificationType is the type (typ) in the header of signatures of notifications. Trust does not accept
// it on cards, so that one cannot be taken for the other.
const notificationType = "a2a-notification+jws"

// SignNotification returns one signature of a payload by each key, each as a JWS with a detached
// payload (RFC 7515, appendix F). Its header names the URL of the receiver, so that the receiver of
// a notification cannot pass it on to another one.
func (s *Signer) SignNotification(payload []byte, url string) ([]string, error) {
	list := make([]string, len(s.keys))
	for i, key := range s.keys {
		options := (&jose.SignerOptions{}).WithType(notificationType).WithHeader("url", url)
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.public.Algorithm), Key: key}, options)
		if err != nil {
			return nil, err
		}
		jws, err := signer.Sign(payload)
		if err != nil {
			return nil, err
		}
		if list[i], err = jws.DetachedCompactSerialize(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (s *Signer) remember(name [sha256.Size]byte, list []*a2av1.AgentCardSignature) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.signed) >= maxSigned {
		clear(s.signed)
	}
	s.signed[name] = list
}

// opaque signs deterministically, which the signers of package jose do not.
type opaque struct {
	private *crypto.Signer // a pointer, so that package fmt prints its address, and not the key
	public  jose.JSONWebKey
}

func (o opaque) Public() *jose.JSONWebKey { return &o.public }

func (o opaque) Algs() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.SignatureAlgorithm(o.public.Algorithm)}
}

func (o opaque) SignPayload(payload []byte, _ jose.SignatureAlgorithm) ([]byte, error) {
	digest := sha256.Sum256(payload)
	switch key := (*o.private).(type) {
	case *ecdsa.PrivateKey:
		return signEC(key, digest[:])
	case *rsa.PrivateKey:
		return rsa.SignPKCS1v15(nil, key, crypto.SHA256, digest[:])
	case ed25519.PrivateKey:
		return ed25519.Sign(key, payload), nil
	}
	return nil, fmt.Errorf("unsupported type of signing key: %T", *o.private)
}

// signEC returns a deterministic ECDSA signature (RFC 6979) in the form of JWS.
func signEC(key *ecdsa.PrivateKey, digest []byte) ([]byte, error) {
	der, err := key.Sign(nil, digest, crypto.SHA256)
	if err != nil {
		return nil, err
	}
	var pair struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(der, &pair); err != nil {
		return nil, err
	}
	both := make([]byte, 64)
	pair.R.FillBytes(both[:32])
	pair.S.FillBytes(both[32:])
	return both, nil
}
