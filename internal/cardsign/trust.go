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

// maxSignatures is how many signatures of a card are looked at.
const maxSignatures = 16

// accepted are the algorithms of others' signatures.
var accepted = []jose.SignatureAlgorithm{
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA, jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
}

// ErrUnsigned is the error for a card without signatures.
var ErrUnsigned = errors.New("the card is not signed")

// Trust verifies cards with the keys that an operator trusts. Nothing that a card
// or its signatures name is fetched or believed: neither jku nor a key. Safe for
// concurrent use.
type Trust struct{ keys []jose.JSONWebKey }

// NewTrust returns a Trust in the keys of files; see ParseTrusted.
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
		return nil, errors.New("no key to trust")
	}
	return t, nil
}

// Verify returns what a trusted key has signed of a card, and that key's id: a
// signature over the compact form says nothing of what is empty, which is not in
// the card returned then. Errors: ErrUnsigned; no signature is by a trusted key
// over this card, in words for the operator.
func (t *Trust) Verify(card *a2av1.AgentCard) (signed *a2av1.AgentCard, kid string, err error) {
	signatures := card.GetSignatures()
	if len(signatures) == 0 {
		return nil, "", ErrUnsigned
	}
	if len(signatures) > maxSignatures {
		return nil, "", fmt.Errorf("the card has %d signatures; at most %d are looked at", len(signatures), maxSignatures)
	}
	for _, form := range []func(*a2av1.AgentCard) ([]byte, error){Canonical, Compact} {
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

// read returns the card that was signed.
func read(payload []byte, kid string, signatures []*a2av1.AgentCardSignature) (*a2av1.AgentCard, string, error) {
	card := &a2av1.AgentCard{}
	if err := protojson.Unmarshal(payload, card); err != nil {
		return nil, "", fmt.Errorf("reading what was signed: %w", err)
	}
	card.Signatures = signatures
	return card, kid, nil
}

// fits reports whether a signature is by a trusted key over payload. The key's id
// is a hint: all keys are tried.
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
		return nil, "", errors.New("names no key")
	}
	return jws, jws.Signatures[0].Protected.KeyID, nil
}

// refusal says why no signature counts.
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
			return fmt.Errorf("the card's signature by the trusted key %q does not fit: the card is not as it was signed, or another key signed it", kid)
		case !slices.Contains(by, strconv.Quote(kid)):
			by = append(by, strconv.Quote(kid))
		}
	}
	if len(by) == 0 {
		return errors.New("no signature of the card can be read, or names its key and an algorithm that is accepted")
	}
	return fmt.Errorf("no signature is by a trusted key over what the card says; it is signed by %s", strings.Join(by, ", "))
}
