package monitor

import (
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"time"

	"github.com/google/uuid"
)

// A team has no single order of events: its tasks have a journal each. So a cursor
// says which of their events were told: those up to a time, except of the roots
// that it lists, each with the sequence up to which it was told. All that happens
// is on record within the margin behind which that time stays.

const (
	// margin is how long it may take, at most, until what has happened can be read by
	// everybody; the clocks of replicas differ by less.
	margin = time.Minute
	// lifetime is for how long a cursor can be gone on behind.
	lifetime = 50 * time.Minute
	// maxListed bounds a cursor, which also travels as a header.
	maxListed = 256
	// lost is the cursor of a team of which more is going on than one can hold:
	// behind it a stream begins with a snapshot.
	lost = "-"

	cursorVersion = 2
)

// cursor is where a watcher of a team has come to.
type cursor struct {
	upTo  time.Time        // in milliseconds
	roots map[string]int64 // by root; what they were told, others by time
	board int64            // seq of the last event of the board that was told
}

// sum ties a cursor to the team and the owner that it was made for.
func sum(owner, team string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(owner + "\x00" + team)) // never fails
	return h.Sum64()
}

// encode makes a text of a cursor.
func (c cursor) encode(owner, team string) string {
	if len(c.roots) > maxListed {
		return lost
	}
	b := []byte{cursorVersion}
	b = binary.BigEndian.AppendUint64(b, sum(owner, team))
	b = binary.AppendVarint(b, c.upTo.UnixMilli())
	b = binary.AppendUvarint(b, uint64(c.board)) //nolint:gosec // never negative
	for root, seq := range c.roots {
		if id, err := uuid.Parse(root); err == nil && id.String() == root {
			b = append(append(b, 0), id[:]...)
		} else {
			b = append(binary.AppendUvarint(b, uint64(len(root))), root...)
		}
		b = binary.AppendUvarint(b, uint64(seq)) //nolint:gosec // never negative
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// decode reads a cursor; false for what is none of this team and owner.
func decode(text, owner, team string) (c cursor, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < 9 || b[0] != cursorVersion || binary.BigEndian.Uint64(b[1:9]) != sum(owner, team) {
		return c, false
	}
	ms, n := binary.Varint(b[9:])
	if n <= 0 {
		return c, false
	}
	b = b[9+n:]
	board, n := binary.Uvarint(b)
	if n <= 0 || board > 1<<62 {
		return c, false
	}
	c = cursor{upTo: time.UnixMilli(ms), roots: map[string]int64{}, board: int64(board)}
	for b = b[n:]; len(b) > 0; {
		var root string
		if root, b, ok = readRoot(b); !ok {
			return cursor{}, false
		}
		seq, n := binary.Uvarint(b)
		if n <= 0 || seq > 1<<62 || len(c.roots) == maxListed {
			return cursor{}, false
		}
		c.roots[root], b = int64(seq), b[n:]
	}
	return c, true
}

func readRoot(b []byte) (root string, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	switch b = b[max(n, 0):]; {
	case n <= 0:
		return "", nil, false
	case size == 0 && len(b) >= 16:
		return uuid.UUID(b[:16]).String(), b[16:], true
	case size == 0 || size > uint64(len(b)):
		return "", nil, false
	}
	return string(b[:size]), b[size:], true
}
