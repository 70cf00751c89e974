package db

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"regexp"
	"slices"

	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/secret"
)

// sealedMagic begins what a configured key has encrypted. After it come the length of the id of the key in
// one byte, the id, and the output of the cipher. What the key in the store has encrypted is the output of
// the cipher alone, which begins with random bytes.
const sealedMagic = "\x00secret\x01"

// SealedHeader returns what precedes the output of the cipher for a key.
func SealedHeader(id string) []byte {
	return append(append([]byte(sealedMagic), byte(len(id))), id...) //nolint:gosec // ids have at most 63 bytes
}

// ParseSealed returns the id of the key that has encrypted a value, and the length of its header; 0 if it
// has none.
func ParseSealed(value []byte) (id string, header int) {
	rest, ok := bytes.CutPrefix(value, []byte(sealedMagic))
	if !ok || len(rest) == 0 || len(rest) <= int(rest[0]) || rest[0] == 0 {
		return "", 0
	}
	n := int(rest[0])
	return string(rest[1 : 1+n]), len(sealedMagic) + 1 + n
}

// keyring encrypts the secrets of a store, and detects changes to them. Each value is bound to a name, so
// that it cannot stand for another one. keyring is safe for concurrent use.
type keyring struct {
	stored cipher.AEAD            // the key in the store itself
	byID   map[string]cipher.AEAD // the configured keys
	ids    []string               // of the configured keys: the first one encrypts
}

// validKeyID matches the ids of configured keys.
var validKeyID = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,63}$`)

// newKeyring returns a keyring that encrypts with the first key, and without keys with the one in the store.
func newKeyring(stored []byte, keys []secret.Key) (*keyring, error) {
	r := &keyring{byID: map[string]cipher.AEAD{}}
	var err error
	if r.stored, err = newCipher(stored); err != nil {
		return nil, fmt.Errorf("%w: the key in the store is not one: %w", runs.ErrDataLoss, err)
	}
	for _, k := range keys {
		if !validKeyID.MatchString(k.ID) {
			return nil, fmt.Errorf("encryption key %q: the id must be 1 to 63 of a-z, A-Z, 0-9, _ . and -", k.ID)
		}
		if r.byID[k.ID] != nil {
			return nil, fmt.Errorf("encryption key %q is given twice; give each key its own id", k.ID)
		}
		value, err := k.Bytes()
		if err != nil {
			return nil, err
		}
		if r.byID[k.ID], err = newCipher(value); err != nil {
			return nil, err
		}
		r.ids = append(r.ids, k.ID)
	}
	return r, nil
}

// newCipher returns AES-GCM with a key, with a random nonce in front of its output.
func newCipher(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal encrypts a value.
func (r *keyring) seal(name, plain []byte) []byte {
	if len(r.ids) == 0 {
		return r.stored.Seal(nil, nil, plain, name) //nolint:gosec // the cipher puts a random nonce in front by itself
	}
	header := SealedHeader(r.ids[0])
	return r.byID[r.ids[0]].Seal(header, nil, plain, slices.Concat(header, name)) //nolint:gosec // likewise
}

// open decrypts a value. The error is an NoKeyError if the key is not configured. Any other error means that the value
// is damaged or belongs to another name, or that the key does not have the value that encrypted it.
func (r *keyring) open(name, sealed []byte) ([]byte, error) {
	id, n := ParseSealed(sealed)
	if n == 0 {
		return r.stored.Open(nil, nil, sealed, name)
	}
	aead := r.byID[id]
	if aead == nil {
		return nil, NoKeyError{id}
	}
	return aead.Open(nil, nil, sealed[n:], slices.Concat(sealed[:n], name))
}

// NoKeyError is the error for a key that the store needs and that is not configured.
type NoKeyError struct{ id string }

func (e NoKeyError) Error() string {
	return fmt.Sprintf("the secrets in the store are encrypted under the key %q, which is not configured; add it to the keys of the configuration, "+
		"server: {encryption: {keys: [{id: %q, value: \"${file:PATH}\"}]}}; if the key is lost, stop all servers and delete what it has encrypted with: "+
		"team-server store forget-secrets --key %s --store URL", e.id, e.id, e.id)
}

// errWrongKey is the error for a configured key whose value differs from the one that encrypted the store.
type errWrongKey struct{ id string }

func (e errWrongKey) Error() string {
	return fmt.Sprintf("the encryption key %q does not have the value that encrypted the store; restore that value, "+
		"or give the new value a new id and list the former key after it", e.id)
}
