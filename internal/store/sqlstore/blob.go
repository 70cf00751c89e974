package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/agentteams/team-server/pkg/a2a"
)

// leastBlob is the least size, in bytes, of a value in a record that is stored as a blob. Most values
// of that size are files in messages, which occur in several records of a run.
const leastBlob = 32 << 10

// splitRecord is the first byte of a record whose blobs are stored apart. No encoded message begins with
// it, because it would be the tag of field 0.
const splitRecord = 0

// blob is a value that is stored once for each run, under its hash. It has the same life as its run.
type blob struct {
	hash  []byte // SHA-256
	value []byte
}

// blobs holds values by hash.
type blobs map[string][]byte

// insertBlob stores a blob of a batch that was admitted by fence.
const insertBlob = `INSERT INTO blob (id, hash, body)
SELECT id, $4, $5 FROM run WHERE id = $1 AND epoch = $2 AND seq = $3
ON CONFLICT DO NOTHING`

// insertFirstBlob stores a blob of the first event of a new task.
const insertFirstBlob = `INSERT INTO blob (id, hash, body) SELECT $1, $4, $5 WHERE ` + mine + ` ON CONFLICT DO NOTHING`

// split returns an encoded message without its large values, and these values. If it has none, it
// returns body itself.
//
// The result begins with splitRecord, the number of places, and for each place where a value was taken
// out the number of bytes before it that are not from a value, and the hash; the bytes that are left
// follow.
func split(m proto.Message, body []byte) (rest []byte, taken []blob) {
	if len(body) < leastBlob {
		return body, nil
	}
	values := largeValues(m.ProtoReflect(), nil)
	slices.SortFunc(values, func(a, b []byte) int { return cmp.Or(cmp.Compare(len(b), len(a)), bytes.Compare(a, b)) })
	values = slices.CompactFunc(values, bytes.Equal)
	var places []place
	for _, v := range values {
		sum := sha256.Sum256(v)
		b := blob{sum[:], v}
		before := len(places)
		for from := 0; ; {
			i := bytes.Index(body[from:], v)
			if i < 0 {
				break
			}
			p := place{from + i, b}
			if from = p.end(); !slices.ContainsFunc(places, p.overlaps) {
				places = append(places, p)
			}
		}
		if len(places) > before {
			taken = append(taken, b)
		}
	}
	if len(places) == 0 {
		return body, nil
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.at, b.at) })
	head, left, from := binary.AppendUvarint([]byte{splitRecord}, uint64(len(places))), []byte(nil), 0
	for _, p := range places {
		head = append(binary.AppendUvarint(head, uint64(p.at-from)), p.hash...) //nolint:gosec // places are in order
		left = append(left, body[from:p.at]...)
		from = p.end()
	}
	return append(append(head, left...), body[from:]...), taken
}

// place is where a blob is in an encoded message.
type place struct {
	at int
	blob
}

func (p place) end() int { return p.at + len(p.value) }

func (p place) overlaps(q place) bool { return p.at < q.end() && q.at < p.end() }

// largeValues appends the values of the fields of type bytes that are stored as blobs.
func largeValues(m protoreflect.Message, to [][]byte) [][]byte {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		each := func(f protoreflect.FieldDescriptor, v protoreflect.Value) {
			switch {
			case f.Message() != nil:
				to = largeValues(v.Message(), to)
			case f.Kind() == protoreflect.BytesKind && len(v.Bytes()) >= leastBlob:
				to = append(to, v.Bytes())
			}
		}
		switch {
		case f.IsList():
			for i := range v.List().Len() {
				each(f, v.List().Get(i))
			}
		case f.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				each(f.MapValue(), v)
				return true
			})
		default:
			each(f, v)
		}
		return true
	})
	return to
}

// errSplit means that a split record cannot be read.
var errSplit = errors.New("the record is not complete")

// join returns the encoded message of a stored record, and the hashes of the blobs that it needs and
// that known does not have. If it returns hashes, it returns no message. The error is errSplit.
func join(record []byte, known blobs) (body []byte, lacking [][]byte, err error) {
	if len(record) == 0 || record[0] != splitRecord {
		return record, nil, nil
	}
	rest := record[1:]
	number := func() uint64 {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			err = errSplit
			return 0
		}
		rest = rest[n:]
		return v
	}
	count := number()
	type gap struct {
		before uint64
		hash   []byte
	}
	var gaps []gap
	for i := uint64(0); i < count && err == nil; i++ {
		g := gap{before: number()}
		if len(rest) < sha256.Size {
			return nil, nil, errSplit
		}
		g.hash, rest = rest[:sha256.Size], rest[sha256.Size:]
		gaps = append(gaps, g)
		if _, ok := known[string(g.hash)]; !ok {
			lacking = append(lacking, g.hash)
		}
	}
	if err != nil || len(lacking) > 0 {
		return nil, lacking, err
	}
	for _, g := range gaps {
		if g.before > uint64(len(rest)) {
			return nil, nil, errSplit
		}
		body = append(append(body, rest[:g.before]...), known[string(g.hash)]...)
		rest = rest[g.before:]
	}
	return append(body, rest...), nil, nil
}

// readBlobs reads blobs of a run into known. Blobs that are not there have an empty value, so that the
// checksum of their record does not fit.
func (s *Store) readBlobs(ctx context.Context, q querier, root string, hashes [][]byte, known blobs) error {
	for _, hash := range hashes {
		var value []byte
		err := q.scan(ctx, []any{&value}, `SELECT body FROM blob WHERE id = $1 AND hash = $2`, root, hash)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		known[string(hash)] = value
	}
	return nil
}

// joined returns the encoded message of a stored record of a run. The error may be a2a.ErrDataLoss.
func (s *Store) joined(ctx context.Context, q querier, root string, n int64, record []byte) ([]byte, error) {
	known := blobs{}
	_, lacking, err := join(record, known)
	if err == nil {
		if err = s.readBlobs(ctx, q, root, lacking, known); err != nil {
			return nil, err
		}
		record, _, err = join(record, known)
	}
	if err != nil {
		return nil, dataLoss("record", root, n)
	}
	return record, nil
}

// eachEvent runs a query for the columns seq, scope, sum and body of events of a run, and passes the
// events to take in order. It may start again from the first row; it calls reset before each start. The
// error is that of take, of the database, or a2a.ErrDataLoss.
func (s *Store) eachEvent(ctx context.Context, q querier, root string, reset func(), take func(a2a.Record) error, text string, args ...any) error {
	known := blobs{}
	for {
		var lacking [][]byte
		err := each(ctx, q, func() { reset(); lacking = nil }, func(r *sql.Rows) error {
			rec, more, err := scanEvent(r, root, known)
			if lacking = append(lacking, more...); len(lacking) > 0 {
				return err // read on, for all blobs that are lacking
			}
			if err != nil {
				return err
			}
			return take(rec)
		}, text, args...)
		if err != nil || len(lacking) == 0 {
			return err
		}
		if err := s.readBlobs(ctx, q, root, lacking, known); err != nil {
			return err
		}
	}
}
