package sqlstore

import (
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/protobuf/proto"
	sqlite3 "modernc.org/sqlite/lib"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumOf is the checksum of a record: of where it stands as well as of what it
// holds, so that a row that moved is found too (P15).
func sumOf(id string, n int64, scope string, body []byte) int64 {
	b := make([]byte, 0, len(id)+len(scope)+24)
	b = append(b, id...)
	b = append(b, 0)
	b = strconv.AppendInt(b, n, 10)
	b = append(b, 0)
	b = append(b, scope...)
	return int64(crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, body))
}

// dataLoss is the error of a record that is not what was written.
func dataLoss(what, id string, n int64) error {
	return fmt.Errorf("%s %d of %s: %w", what, n, id, a2a.ErrDataLoss)
}

// encodeEvent returns an event as it is stored.
func encodeEvent(id string, ev *teamv1.Event) (body []byte, sum int64, err error) {
	body, err = proto.Marshal(ev)
	if err != nil {
		return nil, 0, fmt.Errorf("encode event %d of %s: %w", ev.GetSeq(), id, err)
	}
	return body, sumOf(id, ev.GetSeq(), ev.GetScope(), body), nil
}

// decodeEvent returns a stored event. a2a.ErrDataLoss.
func decodeEvent(id string, seq int64, scope string, sum int64, body []byte) (*teamv1.Event, error) {
	ev := &teamv1.Event{}
	if sumOf(id, seq, scope, body) != sum || proto.Unmarshal(body, ev) != nil {
		return nil, dataLoss("event", id, seq)
	}
	return ev, nil
}

// decodeInbound returns a stored input. a2a.ErrDataLoss.
func decodeInbound(id string, n, sum int64, body []byte) (*teamv1.Inbound, error) {
	in := &teamv1.Inbound{}
	if sumOf(id, n, "", body) != sum || proto.Unmarshal(body, in) != nil {
		return nil, dataLoss("input", id, n)
	}
	in.N = n
	return in, nil
}

// damaged makes a database's word that it is damaged a2a.ErrDataLoss.
func damaged(err error) error {
	if isDamage(err) && !errors.Is(err, a2a.ErrDataLoss) {
		return fmt.Errorf("%w: %w", a2a.ErrDataLoss, err)
	}
	return err
}

// isDamage reports whether an error is a database's word that it is damaged, or that a
// column has a value of another type than is ever written to it. database/sql has no type
// for the latter, so its text is matched.
func isDamage(err error) bool {
	var pe *pgconn.PgError
	c := code(err) & 0xff
	if err != nil && strings.HasPrefix(err.Error(), "sql: Scan error on column") {
		return true
	}
	return c == sqlite3.SQLITE_CORRUPT || c == sqlite3.SQLITE_NOTADB || errors.As(err, &pe) && strings.HasPrefix(pe.Code, "XX")
}
