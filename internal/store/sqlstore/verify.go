package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// recordQueries select all records that have a checksum. The columns are the name of the owner of the record for
// messages, the four values that sumOf covers, and the checksum. Records of the same run follow each other.
var recordQueries = []string{
	`SELECT 'task ' || id, id, seq, scope, body, sum FROM event ORDER BY id, seq`,
	`SELECT 'task ' || id, id, n, '', body, sum FROM inbox ORDER BY id, n`,
	`SELECT 'task ' || id, id, snap_seq, '', snap, snap_sum FROM task WHERE snap IS NOT NULL ORDER BY id`,
	`SELECT 'conversation ' || context_id, owner || char(0) || context_id, n, path, body, sum FROM history`,
	`SELECT 'conversation ' || context_id, owner || char(0) || context_id, n, path, body, sum FROM conversation_state`,
	`SELECT 'board of ' || team, account || char(0) || team, 0, 'event ' || seq, body, sum FROM board_event`,
	`SELECT 'board of ' || team, account || char(0) || team, 0, 'item ' || id, body, sum FROM work_item`,
}

// damage lists the tasks, conversations and boards that have records with a wrong checksum.
type damage struct {
	of    []string        // the first maxNamed
	known map[string]bool // all
}

// maxNamed is the maximum number of tasks, conversations and boards that a message about damaged records names.
const maxNamed = 10

func (d *damage) add(of string) {
	if !d.known[of] && len(d.of) < maxNamed {
		d.of = append(d.of, of)
	}
	d.known[of] = true
}

func (d *damage) String() string {
	text := strings.Join(d.of, ", ")
	if more := len(d.known) - len(d.of); more > 0 {
		text += fmt.Sprintf(", and %d others", more)
	}
	return text
}

// findDamage compares the records of a store with their checksums. The structure of the file must be sound, and no
// process may change the file meanwhile.
func findDamage(ctx context.Context, file string) (_ *damage, err error) {
	db, err := backupDB(file, "&mode=ro&immutable=1")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(2) // blobs are read while records are
	found := &damage{known: map[string]bool{}}
	for _, query := range recordQueries {
		if err := found.scan(ctx, pgQuerier{db}, query); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// scan reads the records of one query. It accepts values of any type, because damage changes types, too.
func (d *damage) scan(ctx context.Context, q querier, query string) error {
	rows, err := q.query(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // Err reports it
	known, of := blobs{}, ""
	for rows.Next() {
		var name, id, n, scope, body, sum any
		if err := rows.Scan(&name, &id, &n, &scope, &body, &sum); err != nil {
			return err
		}
		if next := fmt.Sprint(name); next != of {
			clear(known)
			of = next
		}
		sound, err := soundRecord(ctx, q, known, id, n, scope, body, sum)
		if err != nil {
			return err
		}
		if !sound {
			d.add(of)
		}
	}
	return rows.Err()
}

// soundRecord reports whether a record has its checksum. It reads blobs that are missing from known.
func soundRecord(ctx context.Context, q querier, known blobs, id, n, scope, body, sum any) (bool, error) {
	root, isText := id.(string)
	number, isNumber := n.(int64)
	below, isScope := scope.(string)
	record, isBody := body.([]byte)
	want, isSum := sum.(int64)
	if !isText || !isNumber || !isScope || !isBody && body != nil || !isSum {
		return false, nil
	}
	_, missing, err := join(record, known)
	if err == nil {
		if err := readBlobs(ctx, q, root, missing, known); err != nil {
			return false, err
		}
		record, _, err = join(record, known)
	}
	return err == nil && sumOf(root, number, below, record) == want, nil
}
