package db

import (
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/agentteams/team-server/internal/runs"
)

// castagnoli is the table of the checksums.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SumOf returns the checksum of a record. It covers the position of the record as well as its
// content, so that a row in the wrong place is detected, too.
func SumOf(id string, n int64, scope string, body []byte) int64 {
	b := make([]byte, 0, len(id)+len(scope)+24)
	b = append(b, id...)
	b = append(b, 0)
	b = strconv.AppendInt(b, n, 10)
	b = append(b, 0)
	b = append(b, scope...)
	return int64(crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, body))
}

// DataLoss returns the error of a record that differs from what was written.
func DataLoss(what, id string, n int64) error {
	return fmt.Errorf("%s %d of %s: %w", what, n, id, runs.ErrDataLoss)
}

// damaged wraps an error with which the database reports damage in runs.ErrDataLoss.
func damaged(err error) error {
	if isDamage(err) && !errors.Is(err, runs.ErrDataLoss) {
		return fmt.Errorf("%w: %w", runs.ErrDataLoss, err)
	}
	return err
}

// isDamage reports whether an error means that the database is damaged, or that a column has a
// value of a type that is never written to it. database/sql has no error type for the latter, so
// its text is matched.
func isDamage(err error) bool {
	var pe *pgconn.PgError
	c := code(err) & 0xff
	if err != nil && strings.HasPrefix(err.Error(), "sql: Scan error on column") {
		return true
	}
	return c == sqlite3.SQLITE_CORRUPT || c == sqlite3.SQLITE_NOTADB || errors.As(err, &pe) && strings.HasPrefix(pe.Code, "XX")
}
