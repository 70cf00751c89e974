package store

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/agentteams/team-server/internal/runs"
)

// tokenLife is how long a page token is valid.
const tokenLife = time.Hour

// Cursor is a position in a listing.
type Cursor struct {
	// ID is the id of the last task listed; empty means the beginning.
	ID string
	// At is that by which the list is ordered, of that task: such as its status time, in nanoseconds since the Unix
	// epoch.
	At int64
	// Total is the number of tasks when the first page was read.
	Total int
}

// Sealer makes encrypted page tokens. A token is valid only for what it was made for: an owner and a filter, see
// BoundTo, or a query, see BoundToQuery.
type Sealer struct{ aead cipher.AEAD }

// NewSealer returns a Sealer with an AES key. It panics if the key has a wrong size.
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

// Seal returns a token for the page after a cursor.
func (s Sealer) Seal(bound []byte, c Cursor, now time.Time) string {
	var b []byte
	b = binary.AppendVarint(b, now.Add(tokenLife).Unix())
	b = binary.AppendVarint(b, int64(c.Total))
	b = binary.AppendVarint(b, c.At)
	b = append(b, c.ID...)
	sealed := s.aead.Seal(nil, nil, b, bound) //nolint:gosec // the cipher puts a random nonce in front by itself
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// Open returns the cursor in a token. Without a token it returns that of the beginning. The error is
// runs.ErrPageToken.
func (s Sealer) Open(bound []byte, token string, now time.Time) (Cursor, error) {
	if token == "" {
		return Cursor{}, nil
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return Cursor{}, runs.ErrPageToken
	}
	b, err := s.aead.Open(nil, nil, sealed, bound)
	if err != nil {
		return Cursor{}, runs.ErrPageToken
	}
	var fields [3]int64 // well formed, because they were sealed with this key
	for i := range fields {
		v, n := binary.Varint(b)
		fields[i], b = v, b[max(n, 0):]
	}
	if now.Unix() > fields[0] {
		return Cursor{}, runs.ErrPageToken
	}
	return Cursor{Total: int(fields[1]), At: fields[2], ID: string(b)}, nil
}

// BoundTo returns what the token of a page of a list is valid for. It does not include the page size, which may
// change between pages.
func BoundTo(owner string, f runs.Filter) []byte {
	var b []byte
	for _, s := range []string{owner, f.Agent, f.ContextID} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendVarint(b, int64(f.State))
	return binary.AppendVarint(b, Oldest(f))
}
