// Package secret has the types of values that must not be printed: keys, tokens and passwords.
package secret

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Hidden is what a Secret prints.
const Hidden = "***"

// Secret is a text that no format, encoder or logger prints: all of them print Hidden. Only Reveal
// returns the text. The zero value is the empty text.
type Secret struct {
	_ [0]func() // == would compare pointers, and does not compile

	// text is a pointer, because package fmt prints the fields of a struct that it reaches through an
	// unexported field without calling their methods; of a pointer it prints the address.
	text *string
}

// New returns a Secret with a text.
func New(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{text: &text}
}

// Reveal returns the text.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether the text is empty.
func (s Secret) IsZero() bool { return s.text == nil }

// Equal reports whether two secrets have the same text. The time that it takes does not depend on where
// they differ.
func (s Secret) Equal(other Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

// String returns Hidden.
func (s Secret) String() string { return Hidden }

// Format prints Hidden for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(Hidden)) } // a Formatter cannot return an error

// MarshalText returns Hidden.
func (s Secret) MarshalText() ([]byte, error) { return []byte(Hidden), nil }

// MinHidden is the size of the shortest secret that Hide replaces, in bytes. Shorter ones are part of other
// words.
const MinHidden = 8

// Hide returns a text of another party with Hidden in place of secrets that it may have been given. It does
// not find secrets of fewer than MinHidden bytes.
func Hide(text string, secrets ...Secret) string {
	// One secret may begin with another.
	longestFirst := func(a, b Secret) int { return cmp.Compare(len(b.Reveal()), len(a.Reveal())) }
	for _, s := range slices.SortedFunc(slices.Values(secrets), longestFirst) {
		if value := s.Reveal(); len(value) >= MinHidden {
			text = strings.ReplaceAll(text, value, Hidden)
		}
	}
	return text
}

// Source returns the secret of calls to one server, such as a bearer token that expires. It is safe for concurrent use.
type Source interface {
	// Token returns the token to use now. The error says why there is none, without secrets.
	Token(ctx context.Context) (Secret, error)
	// Discard has the next Token return another one, because the server has refused this one.
	Discard(used Secret)
}

// Key is an encryption key with its name.
type Key struct {
	// ID names the key in what it has encrypted. Another key must never get the same one.
	ID string
	// Value is the key: 32 bytes in base64 or hex.
	Value Secret
}

// Bytes returns the 32 bytes of the key.
func (k Key) Bytes() ([]byte, error) {
	text := strings.TrimSpace(k.Value.Reveal())
	if b, err := hex.DecodeString(text); err == nil && len(b) == keySize {
		return b, nil
	}
	text = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
	if b, err := base64.RawStdEncoding.DecodeString(text); err == nil && len(b) == keySize {
		return b, nil
	}
	return nil, fmt.Errorf("encryption key %q: value must be %d bytes in base64 or hex, for example the output of: openssl rand -base64 32", k.ID, keySize)
}

// keySize is the size of a Key in bytes.
const keySize = 32
