package store

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/agentteams/team-server/pkg/a2a"
)

// tokenLife is how long a page token is good.
const tokenLife = time.Hour

// Cursor is where a listing stands.
type Cursor struct {
	// ID is of the last task listed; empty is the beginning.
	ID string
	// At is that task's status time, in nanoseconds.
	At int64
	// Total is how many tasks there were on the first page.
	Total int
}

// Sealer makes page tokens that only their owner can use, for the same filter,
// and that tell nothing.
type Sealer struct{ aead cipher.AEAD }

// NewSealer takes an AES key; one of a wrong size is a programming error.
func NewSealer(key []byte) Sealer {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return Sealer{aead: aead}
}

// Seal returns a token for what follows a cursor.
func (s Sealer) Seal(owner string, f a2a.Filter, c Cursor, now time.Time) string {
	var b []byte
	b = binary.AppendVarint(b, now.Add(tokenLife).Unix())
	b = binary.AppendVarint(b, int64(c.Total))
	b = binary.AppendVarint(b, c.At)
	b = append(b, c.ID...)
	sealed := s.aead.Seal(nil, nil, b, bound(owner, f)) //nolint:gosec // the cipher puts a random nonce in front by itself
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// Open returns the cursor of a filter's token; without a token that of the
// beginning. a2a.ErrPageToken.
func (s Sealer) Open(owner string, f a2a.Filter, now time.Time) (Cursor, error) {
	if f.PageToken == "" {
		return Cursor{}, nil
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(f.PageToken)
	if err != nil {
		return Cursor{}, a2a.ErrPageToken
	}
	b, err := s.aead.Open(nil, nil, sealed, bound(owner, f))
	if err != nil {
		return Cursor{}, a2a.ErrPageToken
	}
	var fields [3]int64 // as sealed with this key: well formed
	for i := range fields {
		v, n := binary.Varint(b)
		fields[i], b = v, b[max(n, 0):]
	}
	if now.Unix() > fields[0] {
		return Cursor{}, a2a.ErrPageToken
	}
	return Cursor{Total: int(fields[1]), At: fields[2], ID: string(b)}, nil
}

// bound is what a token is tied to. The page size is not: it may change from page to page.
func bound(owner string, f a2a.Filter) []byte {
	var b []byte
	for _, s := range []string{owner, f.Agent, f.ContextID} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendVarint(b, int64(f.State))
	return binary.AppendVarint(b, Oldest(f))
}
