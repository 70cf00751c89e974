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

// cursor is where a listing stands; without an entry at its beginning.
type cursor struct {
	after *entry
	total int
}

// sealer makes page tokens that only their owner can use, for the same filter,
// and that tell nothing.
type sealer struct{ aead cipher.AEAD }

// newSealer takes an AES key; one of a wrong size is a programming error.
func newSealer(key []byte) sealer {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return sealer{aead: aead}
}

// seal returns a token for what follows a cursor.
func (s sealer) seal(owner string, f a2a.Filter, c cursor, now time.Time) string {
	var b []byte
	b = binary.AppendVarint(b, now.Add(tokenLife).Unix())
	b = binary.AppendVarint(b, int64(c.total))
	b = binary.AppendVarint(b, c.after.at)
	b = append(b, c.after.id...)
	sealed := s.aead.Seal(nil, nil, b, bound(owner, f)) //nolint:gosec // the cipher puts a random nonce in front by itself
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// open returns the cursor of a filter's token; without a token that of the
// beginning. a2a.ErrPageToken.
func (s sealer) open(owner string, f a2a.Filter, now time.Time) (cursor, error) {
	if f.PageToken == "" {
		return cursor{}, nil
	}
	sealed, err := base64.RawURLEncoding.DecodeString(f.PageToken)
	if err != nil {
		return cursor{}, a2a.ErrPageToken
	}
	b, err := s.aead.Open(nil, nil, sealed, bound(owner, f))
	if err != nil {
		return cursor{}, a2a.ErrPageToken
	}
	var fields [3]int64 // as sealed by this process: well formed
	for i := range fields {
		v, n := binary.Varint(b)
		fields[i], b = v, b[max(n, 0):]
	}
	if now.Unix() > fields[0] {
		return cursor{}, a2a.ErrPageToken
	}
	return cursor{total: int(fields[1]), after: &entry{at: fields[2], id: string(b)}}, nil
}

// bound is what a token is tied to. The page size is not: it may change from page to page.
func bound(owner string, f a2a.Filter) []byte {
	var b []byte
	for _, s := range []string{owner, f.Agent, f.ContextID} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendVarint(b, int64(f.State))
	return binary.AppendVarint(b, oldest(f))
}
