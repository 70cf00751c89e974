package record

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"iter"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
)

// minBlobSize is the minimum size, in bytes, of a value in a record that is stored as a blob. Most values
// of that size are files and texts in messages, which occur in several records of a run.
const minBlobSize = 32 << 10

// splitRecord is the first byte of a record whose blobs are stored apart. No encoded message begins with
// it, because it would be the tag of field 0.
const splitRecord = 0

// Blob is a value that is stored once for each run, under its hash. It is deleted with its run.
type Blob struct {
	Hash  []byte // SHA-256
	Value []byte
}

// PieceSize is the size in bytes of the pieces in which large values are stored. It bounds how long a transaction that
// stores one takes, for which others wait.
const PieceSize = 1 << 20

// Pieces returns the value in pieces, as it is stored.
func (b Blob) Pieces() iter.Seq2[int64, []byte] {
	return func(yield func(int64, []byte) bool) {
		n := int64(0)
		for piece := range slices.Chunk(b.Value, PieceSize) {
			if !yield(n, piece) {
				return
			}
			n++
		}
	}
}

// blobs holds values by hash.
type blobs map[string][]byte

// selectBlob selects the pieces of a blob of a run.
const selectBlob = `SELECT body FROM blob WHERE id = $1 AND hash = $2 ORDER BY piece`

// Split returns an encoded message without its large values of types bytes and string, and each of these values
// once. A value is only removed if may accepts its hash; a nil may accepts all. If no value is removed, record is body
// itself.
//
// The result begins with splitRecord, the number of places, and for each place where a value was removed
// the number of bytes before it that are not from a value, its size, and its hash; the bytes that are left follow.
func Split(m proto.Message, body []byte, may func(hash []byte) bool) (record []byte, extracted []Blob) {
	if len(body) < minBlobSize {
		return body, nil
	}
	places := appendPlaces(nil, m.ProtoReflect().Descriptor(), body, 0)
	for i := range places {
		places[i].sum = sha256.Sum256(body[places[i].from:places[i].to])
	}
	if may != nil {
		places = slices.DeleteFunc(places, func(p place) bool { return !may(p.sum[:]) })
	}
	if len(places) == 0 {
		return body, nil
	}
	known := map[string]bool{}
	head, left, from := binary.AppendUvarint([]byte{splitRecord}, uint64(len(places))), []byte(nil), 0
	for _, p := range places {
		if !known[string(p.sum[:])] {
			known[string(p.sum[:])] = true
			extracted = append(extracted, Blob{p.sum[:], body[p.from:p.to]})
		}
		head = binary.AppendUvarint(binary.AppendUvarint(head, uint64(p.from-from)), uint64(p.to-p.from)) //nolint:gosec // places are in order
		head = append(head, p.sum[:]...)
		left = append(left, body[from:p.from]...)
		from = p.to
	}
	return append(append(head, left...), body[from:]...), extracted
}

// place is where a large value is in an encoded message.
type place struct {
	from, to int
	sum      [sha256.Size]byte
}

// appendPlaces appends the places of the large values in an encoded message, in order. The message begins
// at offset at of the whole. It stops at bytes that it cannot parse.
func appendPlaces(to []place, d protoreflect.MessageDescriptor, body []byte, at int) []place {
	for len(body) > 0 {
		number, kind, n := protowire.ConsumeTag(body)
		if n < 0 {
			return to
		}
		size := protowire.ConsumeFieldValue(number, kind, body[n:])
		if size < 0 {
			return to
		}
		if f := d.Fields().ByNumber(number); f != nil && kind == protowire.BytesType && size >= minBlobSize {
			value, _ := protowire.ConsumeBytes(body[n:])
			start := n + size - len(value)
			switch {
			case f.Message() != nil:
				to = appendPlaces(to, f.Message(), value, at+start)
			case (f.Kind() == protoreflect.BytesKind || f.Kind() == protoreflect.StringKind) && len(value) >= minBlobSize:
				to = append(to, place{from: at + start, to: at + start + len(value)})
			}
		}
		body, at = body[n+size:], at+n+size
	}
	return to
}

// errSplit means that a split record cannot be read.
var errSplit = errors.New("the record is truncated or damaged")

// ref refers to a blob.
type ref struct {
	before uint64 // bytes of the record before its place
	size   uint64
	hash   []byte
}

// join returns the encoded message of a stored record. If blobs of it are missing from known, it returns
// the references to them instead, maybe some more than once. The error is errSplit.
func join(record []byte, known blobs) (body []byte, missing []ref, err error) {
	if len(record) == 0 || record[0] != splitRecord {
		return record, nil, nil
	}
	refs, rest, err := readRefs(record[1:])
	if err != nil {
		return nil, nil, err
	}
	for _, r := range refs {
		if _, ok := known[string(r.hash)]; !ok {
			missing = append(missing, r)
		}
	}
	if len(missing) > 0 {
		return nil, missing, nil
	}
	for _, r := range refs {
		if r.before > uint64(len(rest)) {
			return nil, nil, errSplit
		}
		body = append(append(body, rest[:r.before]...), known[string(r.hash)]...)
		rest = rest[r.before:]
	}
	return append(body, rest...), nil, nil
}

// readRefs reads the references of a split record, and returns the bytes that follow. The error is errSplit.
func readRefs(record []byte) (refs []ref, rest []byte, err error) {
	rest = record
	number := func() uint64 {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			err = errSplit
			return 0
		}
		rest = rest[n:]
		return v
	}
	for range number() {
		r := ref{before: number(), size: number()}
		if err != nil || len(rest) < sha256.Size {
			return nil, nil, errSplit
		}
		r.hash, rest = rest[:sha256.Size], rest[sha256.Size:]
		refs = append(refs, r)
	}
	return refs, rest, err
}

// sizeOf returns the number of bytes of the blobs that are missing, some of which may be named more than once.
func sizeOf(missing []ref) int64 {
	var size uint64
	counted := map[string]bool{}
	for _, r := range missing {
		if !counted[string(r.hash)] {
			counted[string(r.hash)] = true
			size += min(r.size, math.MaxInt32) // that of a damaged record may be anything
		}
	}
	return int64(min(size, math.MaxInt64))
}

// readBlobs reads the blobs of a run that are missing from known into it. Blobs that do not exist have an
// empty value, so that the checksum of their record does not match.
func readBlobs(ctx context.Context, q db.Querier, root string, missing []ref, known blobs) error {
	for _, r := range missing {
		if _, ok := known[string(r.hash)]; ok {
			continue
		}
		value, err := readBlob(ctx, q, root, r)
		if err != nil {
			return err
		}
		known[string(r.hash)] = value
	}
	return nil
}

// readBlob reads a blob of a run. Its value is empty if it does not exist.
func readBlob(ctx context.Context, q db.Querier, root string, r ref) (value []byte, err error) {
	const most = 64 << 20 // of what is allocated at first, because the size in a damaged record may be anything
	return ReadPieces(ctx, q, int(min(r.size, most)), selectBlob, root, r.hash)
}

// ReadPieces runs a query for the pieces of a value, and returns it. size is that of the value, as far as it is known.
func ReadPieces(ctx context.Context, q db.Querier, size int, text string, args ...any) (value []byte, err error) {
	err = db.Each(ctx, q, func() { value = make([]byte, 0, size) }, func(rows *sql.Rows) error {
		var piece sql.RawBytes
		err := rows.Scan(&piece)
		value = append(value, piece...)
		return err
	}, text, args...)
	return value, err
}

// Decoded decodes a stored record of a run, which q must not read within a transaction: decode is called with the encoded
// message, in its turn if that is large. The error may be that of decode, runs.ErrDataLoss, or that of inflight.Read.
func Decoded(ctx context.Context, q db.Querier, root string, n int64, record []byte, decode func(body []byte) error) error {
	known := blobs{}
	body, missing, err := join(record, known)
	switch {
	case err != nil:
		return db.DataLoss("record", root, n)
	case len(missing) == 0:
		defer inflight.Turn(int64(len(body)))()
		return decode(body)
	}
	return inTurn(ctx, q, root, missing, known, func() error {
		if body, _, err = join(record, known); err != nil {
			return db.DataLoss("record", root, n)
		}
		return decode(body)
	})
}

// eachEvent runs a query for the columns seq, scope, sum and body of events of a run, and calls take for
// each event in order. It may start again from the first row; it calls reset before each start. The error
// is that of take, of the database, of inflight.Read, or runs.ErrDataLoss.
func eachEvent(ctx context.Context, q db.Querier, root string, reset func(), take func(runs.Record) error, text string, args ...any) error {
	known := blobs{}
	scan := func() (missing []ref, err error) {
		err = db.Each(ctx, q, func() { reset(); missing = nil }, func(r *sql.Rows) error {
			rec, more, err := scanEvent(r, root, known)
			if missing = append(missing, more...); len(missing) > 0 {
				return err // read on, to find all blobs that are missing
			}
			if err != nil {
				return err
			}
			return take(rec)
		}, text, args...)
		return missing, err
	}
	missing, err := scan()
	for err == nil && len(missing) > 0 {
		err = inTurn(ctx, q, root, missing, known, func() (err error) {
			missing, err = scan()
			return err
		})
	}
	return err
}

// inTurn reads the blobs of a run that are missing from known into it, and calls decode in the same turn. The error is that of
// decode, of the database, or of inflight.Read.
func inTurn(ctx context.Context, q db.Querier, root string, missing []ref, known blobs, decode func() error) error {
	end, err := inflight.Read(ctx, sizeOf(missing))
	if err != nil {
		return err
	}
	defer end()
	if err := readBlobs(ctx, q, root, missing, known); err != nil {
		return err
	}
	return decode()
}
