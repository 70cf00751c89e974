package sqlstore

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentteams/team-server/pkg/a2a"
)

// setAside is the suffix of the copy of a damaged log. The store accepts no writes
// while the copy exists. Removing it accepts the loss that the server has logged.
const setAside = ".damaged"

// damagedLog is a write-ahead log with transactions that SQLite does not read because
// of damage before them.
type damagedLog struct {
	file   string // name of the copy
	named  string // the log as it was, as messages name it
	advice string // what to do, besides restoring a backup
	scan   *logScan
	size   int // of a page
}

// checkLog checks the log of a database before SQLite opens it: SQLite drops everything
// after the first damaged frame and overwrites it. checkLog copies a damaged log and
// then corrects single wrong bits. lost is nil if the log is not damaged and there is no
// copy of an earlier damaged log. page1 is the offset of the newest page 1 in the log, 0
// if the log has none.
func checkLog(file string, pageSize int) (lost *damagedLog, page1 int64, err error) {
	name := file + "-wal"
	scan, err := scanLog(name, pageSize)
	if err != nil {
		return nil, 0, err
	}
	copied := name + setAside
	if scan.commits > 0 {
		if err := setLogAside(name, copied); err != nil {
			return nil, 0, fmt.Errorf("the log %s is damaged, and cannot be copied to %s before it is opened: %w", name, copied, err)
		}
		if err := putRight(name, scan.flips); err != nil {
			return nil, 0, fmt.Errorf("the log %s is damaged, and cannot be mended: %w", name, err)
		}
	}
	kept, err := scanLog(copied, pageSize)
	if errors.Is(err, fs.ErrNotExist) || err == nil && kept == nil {
		return nil, scan.page1, nil
	}
	if err != nil {
		return nil, 0, err
	}
	advice := "move that file away and start again, to go on with what can be read"
	return &damagedLog{file: copied, named: copied, advice: advice, scan: kept, size: pageSize}, scan.page1, nil
}

// scanLog reads a log file. A missing log counts as empty; for a missing copy it
// returns nil.
func scanLog(name string, pageSize int) (*logScan, error) {
	f, err := os.Open(name) //nolint:gosec // beside the store
	if errors.Is(err, fs.ErrNotExist) {
		if strings.HasSuffix(name, setAside) {
			return nil, nil //nolint:nilnil // nothing was set aside
		}
		return &logScan{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return readLog(f, info.Size(), pageSize)
}

// setLogAside copies a log, unless a copy exists: the first copy is the most complete.
func setLogAside(name, copied string) error {
	if exists(copied) {
		return nil
	}
	partial := copied + ".partial"
	if err := copyFile(context.Background(), name, partial); err != nil {
		return errors.Join(err, os.RemoveAll(partial))
	}
	if err := os.Rename(partial, copied); err != nil {
		return err
	}
	return syncFolder(copied)
}

// syncFolder syncs the folder of a file, so that the names in it are durable. SQLite
// does this too, but ignores errors.
func syncFolder(file string) error {
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// putRight corrects single bits of a file.
func putRight(name string, flips []flip) error {
	if len(flips) == 0 {
		return nil
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0) //nolint:gosec // beside the store
	if err != nil {
		return err
	}
	for _, flip := range flips {
		var b [1]byte
		if _, err = f.ReadAt(b[:], flip.at); err != nil {
			break
		}
		b[0] ^= flip.mask
		if _, err = f.WriteAt(b[:], flip.at); err != nil {
			break
		}
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// maxListed is the maximum number of tasks that are listed as possibly damaged.
const maxListed = 50

// err returns why the store accepts no writes and what to do. It lists what the
// unreadable transactions wrote and the readable store lacks.
func (l *damagedLog) err(ctx context.Context, q querier) error {
	var b strings.Builder
	fmt.Fprintf(&b, "its write-ahead log was damaged at byte %d; there and behind it stand %d transactions that may have been acknowledged: ",
		append(l.scan.damage, 0)[0], l.scan.commits)
	lost, more := l.lacking(ctx, q)
	switch {
	case len(l.scan.dropped) == 0:
		b.WriteString("all of it could be put right, and nothing is lost")
	case len(lost) == 0:
		b.WriteString("tasks have lost nothing that can be recognized; other records may have")
	default:
		fmt.Fprintf(&b, "these tasks may have lost something: %s", strings.Join(lost, ", "))
		if more > 0 {
			fmt.Fprintf(&b, ", and %d others", more)
		}
	}
	fmt.Fprintf(&b, ". Check the disk. The log as it was is %s. Restore a backup; or %s", l.named, l.advice)
	return fmt.Errorf("%w: %s", a2a.ErrStorage, b.String())
}

// unopened returns why a file with a damaged log cannot be opened, and what to do.
func (l *damagedLog) unopened(file string, err error) error {
	or := ""
	switch {
	case errors.Is(err, errNoSchema):
		or = "; or move it and the files beside it whose names begin like its own away, to begin with an empty store"
	case errors.Is(err, errOlder):
		or = fmt.Sprintf("; or copy what can be read to a new store: team-server migrate --from sqlite:%s --to sqlite:NEW", file)
	}
	return fmt.Errorf("the write-ahead log of %s was damaged at byte %d: %w. Check the disk. The log as it was is %s. Restore a backup%s",
		file, append(l.scan.damage, 0)[0], err, l.named, or)
}

// ofSource changes the messages for a file that is a copy of file: they name the damaged
// log of file instead of that of the copy.
func (l *damagedLog) ofSource(file string) {
	l.advice = "go on with what can be read, which is copied"
	if l.named = file + "-wal" + setAside; !exists(l.named) {
		l.named = file + "-wal"
	}
}

// exists reports whether a file exists.
func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// lacking lists the tasks with events or inputs that are in the unreadable transactions
// and not in the store.
func (l *damagedLog) lacking(ctx context.Context, q querier) (list []string, more int) {
	f, err := os.Open(l.file)
	if err != nil {
		return nil, 0
	}
	defer f.Close() //nolint:errcheck // only read
	most := map[string]int64{}
	page := make([]byte, l.size)
	for _, frame := range l.scan.dropped {
		if frame.page <= 1 {
			continue
		}
		if _, err := f.ReadAt(page, frame.at+frameHeader); err != nil {
			continue
		}
		for _, row := range records(page) {
			most[row.id] = max(most[row.id], row.n)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(most)) {
		var seq int64
		err := q.scan(ctx, []any{&seq}, `SELECT seq FROM run WHERE id = $1`, id)
		var text string
		switch {
		case errors.Is(err, sql.ErrNoRows):
			text = id + " (all of it)"
		case err != nil || seq < most[id]:
			text = fmt.Sprintf("%s (events after %d)", id, seq)
		default:
			continue
		}
		if len(list) < maxListed {
			list = append(list, text)
		} else {
			more++
		}
	}
	return list, more
}

// record identifies a row of the table event: a task and a sequence number.
type record struct {
	id string
	n  int64
}

// records finds rows of the table event in a database page, by their column types. The
// page may be damaged.
func records(page []byte) (list []record) {
	const leaf = 13
	if page[0] != leaf {
		return nil
	}
	for i := range int(binary.BigEndian.Uint16(page[3:])) {
		if 8+2*i+2 > len(page) {
			return list
		}
		at := int(binary.BigEndian.Uint16(page[8+2*i:]))
		if r, ok := recordAt(page, at); ok {
			list = append(list, r)
		}
	}
	return list
}

// recordAt reads the row in a cell; the cell's header has the column types.
func recordAt(page []byte, at int) (r record, ok bool) {
	defer func() {
		if recover() != nil { // beyond the end of the page
			ok = false
		}
	}()
	_, at = varint(page, at) // length
	_, at = varint(page, at) // rowid
	size, types := varint(page, at)
	body := at + int(size&0xffff)
	id, types := varint(page, types)
	seq, types := varint(page, types)
	scope, types := varint(page, types)
	delta, types := varint(page, types)
	check, types := varint(page, types)
	blob, types := varint(page, types)
	isInt := func(t uint64) bool { return t >= 1 && t <= 6 || t == 8 || t == 9 }
	isText := func(t uint64) bool { return t >= 13 && t%2 == 1 }
	if types != body || !isText(id) || !isInt(seq) || !isText(scope) || !isInt(delta) || !isInt(check) || blob < 12 || blob%2 == 1 {
		return record{}, false
	}
	length := int((id - 13) / 2 & 0xffff)
	r.id = string(page[body : body+length])
	for _, c := range r.id {
		if c <= ' ' || c > '~' {
			return record{}, false
		}
	}
	at = body + length
	switch seq {
	case 8, 9: // the numbers 0 and 1
		r.n = int64(seq - 8)
	default:
		width := [...]int{0, 1, 2, 3, 4, 6, 8}[seq]
		for _, b := range page[at : at+width] {
			r.n = r.n<<8 | int64(b)
		}
	}
	return r, r.id != ""
}

// varint decodes a variable-length integer of SQLite.
func varint(b []byte, at int) (n uint64, next int) {
	for i := range 9 {
		c := b[at+i]
		if i == 8 {
			return n<<8 | uint64(c), at + 9
		}
		n = n<<7 | uint64(c&0x7f)
		if c < 0x80 {
			return n, at + i + 1
		}
	}
	return n, at + 9
}

// Fields of a database's header: https://www.sqlite.org/fileformat2.html#database_header
const (
	headerSize    = 100
	defaultPage   = 4096
	headerMagic   = "SQLite format 3\x00"
	schemaFormat  = 4 // the only one that stores the sort order of indexes
	encodingUTF8  = 1
	headerRootLen = 103 // offset of the number of cells on page 1; 0 cells mean that there are no tables
)

// pageSizeOf returns the page size that a header names.
func pageSizeOf(header []byte) int {
	if len(header) < headerSize {
		return defaultPage
	}
	n := int(binary.BigEndian.Uint16(header[16:]))
	if n == 1 {
		n = 65536
	}
	if !isPageSize(n) {
		return defaultPage
	}
	return n
}

// checkHeader rejects a damaged header that SQLite would accept and that would make it
// read records wrongly or not find them.
func checkHeader(h []byte) error {
	if len(h) < headerSize+8 || string(h[:16]) != headerMagic {
		return nil // SQLite reports it
	}
	var wrong []string
	say := func(at int, format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("byte %d: ", at)+fmt.Sprintf(format, args...))
	}
	if h[18] != h[19] || h[18] < 1 || h[18] > 2 {
		say(18, "the versions of the format are %d and %d, expected 2 and 2", h[18], h[19])
	}
	if h[20] != 0 {
		say(20, "%d bytes of each page are reserved, expected 0", h[20])
	}
	tables := binary.BigEndian.Uint16(h[headerRootLen:])
	if f := binary.BigEndian.Uint32(h[44:]); f != schemaFormat && (f != 0 || tables > 0) {
		say(44, "the schema's format is %d, expected %d", f, schemaFormat)
	}
	if e := binary.BigEndian.Uint32(h[56:]); e != encodingUTF8 && (e != 0 || tables > 0) {
		say(56, "the text encoding is %d, expected %d", e, encodingUTF8)
	}
	for i, b := range h[72:92] {
		if b != 0 {
			say(72+i, "%d, expected 0", b)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("its header is damaged (%s); check the disk and restore a backup", strings.Join(wrong, "; "))
}

// readAt reads up to n bytes of a file: fewer at its end, zero if the file does not
// exist.
func readAt(file string, at int64, n int) ([]byte, error) {
	f, err := os.Open(file) //nolint:gosec // the store
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	b := make([]byte, n)
	n, err = f.ReadAt(b, at)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}

// checkWait is how long opening a store waits for the check of its structure. A longer
// check continues while the store is served.
const checkWait = 2 * time.Second

// maxFindings is how many findings of a check an error lists.
const maxFindings = 10

// checkPages reads the structure of the whole database, but does not compare indexes
// with tables. The error wraps a2a.ErrStorage if the structure is damaged; ctx cancels
// the check.
func checkPages(ctx context.Context, db *sql.DB, file string) error {
	found, err := findings(ctx, db, fmt.Sprintf("PRAGMA quick_check(%d)", maxFindings))
	if err != nil || len(found) == 0 {
		return err
	}
	return structureDamaged(file, found)
}

// checkIndexes compares all indexes with their tables, which takes longer than
// checkPages. It checks one table after another, so that it does not read in one
// transaction, which would keep the log from being written over.
func checkIndexes(ctx context.Context, db *sql.DB, file string) error {
	names, err := column(ctx, db, `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`)
	var found []string
	for _, name := range names {
		if err == nil && len(found) < maxFindings {
			var more []string
			more, err = findings(ctx, db, fmt.Sprintf("PRAGMA integrity_check(%q)", name))
			found = append(found, more...)
		}
	}
	if err != nil || len(found) == 0 {
		return err
	}
	found = found[:min(len(found), maxFindings)]
	if slices.ContainsFunc(found, func(text string) bool { return !strings.Contains(text, " index ") }) {
		return structureDamaged(file, found)
	}
	return fmt.Errorf("%w: indexes of %s do not agree with its tables, so tasks may not be found or listed: %s. Check the disk. "+
		"Restore a backup; or stop the server, and make the indexes again: sqlite3 %s REINDEX",
		a2a.ErrStorage, file, strings.Join(found, "; "), file)
}

// structureDamaged returns the error for a file with the given findings.
func structureDamaged(file string, found []string) error {
	return fmt.Errorf("%w: more than single records of %s are damaged: %s. Check the disk. "+
		"Restore a backup; or save what can be read: sqlite3 %s .recover | sqlite3 NEW, and serve sqlite:NEW",
		a2a.ErrStorage, file, strings.Join(found, "; "), file)
}

// findings returns what a check finds, one line for each finding. If SQLite stops the check
// because of damage, its error is a finding as well.
func findings(ctx context.Context, db *sql.DB, check string) (found []string, err error) {
	list, err := column(ctx, db, check)
	for _, text := range list {
		if text = strings.Join(strings.Fields(strings.TrimPrefix(text, "*** in database main ***")), " "); text != "ok" {
			found = append(found, text)
		}
	}
	if isDamage(err) {
		return append(found, err.Error()), nil
	}
	return found, err
}

// column returns the rows of a query of one column, also those before an error.
func column(ctx context.Context, db *sql.DB, query string) (list []string, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // Err reports it
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return list, err
		}
		list = append(list, text)
	}
	return list, rows.Err()
}
