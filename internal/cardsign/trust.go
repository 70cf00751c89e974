package cardsign

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/protobuf/encoding/protojson"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// maxSignatures is the maximum number of signatures on a card.
const maxSignatures = 16

// accepted lists the signature algorithms that are accepted on the cards of others.
var accepted = []jose.SignatureAlgorithm{
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA, jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
}

// ErrUnsigned is the error for a card without signatures.
var ErrUnsigned = errors.New("the card is not signed")

// Trust verifies cards with the public keys that the operator trusts. It never fetches or
// uses a key that a card or its signatures name, such as jku. Trust is safe for concurrent
// use.
type Trust struct{ keys []jose.JSONWebKey }

// NewTrust returns a Trust with the keys in files, whose format ParseTrusted describes.
func NewTrust(files ...[]byte) (*Trust, error) {
	t := &Trust{}
	for i, data := range files {
		keys, err := ParseTrusted(data)
		if err != nil {
			return nil, fmt.Errorf("file %d of trusted keys %w", i+1, err)
		}
		t.keys = append(t.keys, keys...)
	}
	if len(t.keys) == 0 {
		return nil, errors.New("no trusted key")
	}
	return t, nil
}

// Verify returns the content of a card that a trusted key has signed, and the ID of that
// key. If the signature covers the compact form, the returned card has no empty values,
// because they are not signed. The error is ErrUnsigned, or says why no signature is
// trusted, for the operator.
func (t *Trust) Verify(card *a2av1.AgentCard) (signed *a2av1.AgentCard, kid string, err error) {
	signatures := card.GetSignatures()
	if len(signatures) == 0 {
		return nil, "", ErrUnsigned
	}
	if len(signatures) > maxSignatures {
		return nil, "", fmt.Errorf("the card has %d signatures; at most %d are accepted", len(signatures), maxSignatures)
	}
	for _, form := range []func(*a2av1.AgentCard) ([]byte, error){canonicalJSON, compactJSON} {
		payload, err := form(card)
		if err != nil {
			return nil, "", err
		}
		for _, s := range signatures {
			if kid, ok := t.fits(s, payload); ok {
				return read(payload, kid, signatures)
			}
		}
	}
	return nil, "", t.refusal(signatures)
}

// read returns the card in a signed payload.
func read(payload []byte, kid string, signatures []*a2av1.AgentCardSignature) (*a2av1.AgentCard, string, error) {
	card := &a2av1.AgentCard{}
	if err := protojson.Unmarshal(payload, card); err != nil {
		return nil, "", fmt.Errorf("reading the signed card: %w", err)
	}
	card.Signatures = signatures
	return card, kid, nil
}

// fits reports whether a trusted key has signed payload. It tries all keys; the key ID in a
// signature is only a hint.
func (t *Trust) fits(s *a2av1.AgentCardSignature, payload []byte) (kid string, ok bool) {
	jws, kid, err := parse(s, payload)
	if err != nil {
		return "", false
	}
	alg := jws.Signatures[0].Protected.Algorithm
	for _, k := range t.keys {
		if k.Algorithm != "" && k.Algorithm != alg {
			continue
		}
		if _, err := jws.Verify(k.Key); err == nil {
			return kid, true
		}
	}
	return "", false
}

func parse(s *a2av1.AgentCardSignature, payload []byte) (jws *jose.JSONWebSignature, kid string, err error) {
	jws, err = jose.ParseDetached(s.GetProtected()+".."+s.GetSignature(), payload, accepted)
	if err != nil {
		return nil, "", err
	}
	if len(jws.Signatures) != 1 || jws.Signatures[0].Protected.KeyID == "" {
		return nil, "", errors.New("has no key id")
	}
	if jws.Signatures[0].Protected.ExtraHeaders[jose.HeaderType] == notificationType {
		return nil, "", errors.New("is the signature of a notification")
	}
	return jws, jws.Signatures[0].Protected.KeyID, nil
}

// refusal returns the error that says why no signature is trusted.
func (t *Trust) refusal(signatures []*a2av1.AgentCardSignature) error {
	known := map[string]bool{}
	for _, k := range t.keys {
		known[k.KeyID] = k.KeyID != ""
	}
	var by []string
	for _, s := range signatures {
		_, kid, err := parse(s, []byte("{}"))
		switch {
		case err != nil:
			continue
		case known[kid]:
			return fmt.Errorf("the card's signature by the trusted key %q does not match: the card was changed after it was signed, or another key signed it", kid)
		case !slices.Contains(by, strconv.Quote(kid)):
			by = append(by, strconv.Quote(kid))
		}
	}
	if len(by) == 0 {
		return errors.New("the card has no valid signature that names its key and uses an accepted algorithm")
	}
	return fmt.Errorf("no signature is from a trusted key; the card is signed by %s", strings.Join(by, ", "))
}
