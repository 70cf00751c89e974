package monitor

import (
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"time"

	"github.com/google/uuid"
)

// The events of a team have no single order, because each task has a journal of its own. A
// cursor therefore consists of a time and a list of root tasks with sequence numbers. All
// events up to that time were sent, except those of the listed tasks, whose events were sent
// up to their sequence numbers. The time lags behind the clock by margin, so that all replicas
// can read every event before it.

const (
	// margin is the maximum time between an event and the moment when every replica can
	// read it. The clocks of replicas must differ by less.
	margin = time.Minute
	// lifetime is how long a stream can be resumed from a cursor.
	lifetime = 50 * time.Minute
	// maxListed is the maximum number of root tasks in a cursor, which must also fit into an
	// HTTP header.
	maxListed = 256
	// lost is the cursor of a team with more active root tasks than a cursor can hold. A
	// stream that resumes from it begins with a snapshot.
	lost = "-"

	cursorVersion = 2
)

// cursor is the position of a watcher in the events of a team.
type cursor struct {
	upTo  time.Time        // with a precision of milliseconds
	roots map[string]int64 // the last sequence number sent, by listed root task
	board int64            // sequence number of the last board event sent
}

// sum returns a hash that binds a cursor to its team and owner.
func sum(owner, team string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(owner + "\x00" + team)) // never fails
	return h.Sum64()
}

// encode returns the cursor as text.
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

// decode parses a cursor. It returns false for an invalid cursor and for one of another
// team or owner.
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
