package sqlstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/store"
)

// backupSetting is the name of the setting with the manifest of a backup. A backup is a SQLite store with it.
const backupSetting = "backup"

// manifest describes a backup.
type manifest struct {
	At     time.Time       `json:"at"`
	Schema int64           `json:"schema"`
	Tables []tableManifest `json:"tables"`
}

// tableManifest describes a table of a backup as it was when the backup was made, with the columns that it had.
type tableManifest struct {
	Name    string `json:"name"`
	Columns string `json:"columns"`
	Key     string `json:"key"`
	Rows    int64  `json:"rows"`
	SHA256  string `json:"sha256"` // of all rows in the order of their keys
}

// Content says what a backup contains.
type Content struct {
	// At is the time at which the backup began. Everything that was acknowledged before is in it.
	At time.Time `json:"at"`
	// Schema is the version of its schema.
	Schema int64 `json:"schema"`
	// Rows is the number of rows of all tables, and Bytes the size of the file.
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes"`
	// Tasks and Unfinished are the numbers of root tasks, and of those that had not ended.
	Tasks      int64 `json:"tasks"`
	Unfinished int64 `json:"unfinished"`
	// Accounts is the number of accounts with tasks.
	Accounts int64 `json:"accounts"`
	// The numbers of conversations, boards, teams and agents that were made by the API, API keys, webhooks
	// and records of the audit log.
	Conversations int64 `json:"conversations"`
	Boards        int64 `json:"boards"`
	Catalog       int64 `json:"catalog"`
	Keys          int64 `json:"keys"`
	Webhooks      int64 `json:"webhooks"`
	Audit         int64 `json:"audit"`
	// EncryptionKeys are the ids of the keys of server.encryption without which its secrets cannot be read.
	EncryptionKeys []string `json:"encryption_keys,omitempty"`
}

// FileError is an error about the file of a backup, and not about the store. Its text names the file.
type FileError struct{ err error }

func (e FileError) Error() string { return e.err.Error() }
func (e FileError) Unwrap() error { return e.err }

// fileErrorf returns a FileError.
func fileErrorf(format string, args ...any) error { return FileError{fmt.Errorf(format, args...)} }

// Backup writes a copy of a store to a new file, as the store is at one moment. Servers may use the store
// meanwhile. The file is complete and synced before it gets its name; it must not exist, or with force be a
// backup. log receives warnings.
func Backup(ctx context.Context, raw, file string, force bool, log *zap.Logger) (c Content, err error) {
	check := func() error { return checkTarget(ctx, raw, file, force) }
	if err := check(); err != nil {
		return Content{}, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), ".team-server-backup-")
	if err != nil {
		return Content{}, fileErrorf("make a folder beside %s for the backup: %w", file, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	made := filepath.Join(dir, "store.db")
	at := time.Now()
	if source, ok := strings.CutPrefix(raw, store.SQLite); ok {
		err = backupSQLite(ctx, source, made)
	} else {
		err = explainRights(backupPostgres(ctx, raw, made, log))
	}
	if err == nil {
		err = seal(ctx, made, at)
	}
	if err == nil {
		c, err = verifyBackup(ctx, made)
	}
	if err == nil {
		err = publish(made, file, force, check)
	}
	if err != nil {
		return Content{}, explainFull(file, err)
	}
	return c, nil
}

// checkTarget returns an error if a backup of a store must not be written to a file. With force, the file may be a
// backup, but never the store itself, and no other file.
func checkTarget(ctx context.Context, raw, file string, force bool) error {
	info, err := os.Lstat(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return FileError{err}
	}
	there := err == nil
	if there && !info.Mode().IsRegular() {
		return fileErrorf("%s is not a regular file; name another file", file)
	}
	if source, ok := strings.CutPrefix(raw, store.SQLite); ok && there {
		if of, err := os.Stat(source); err == nil && os.SameFile(of, info) {
			return fileErrorf("%s is the store itself; name another file for the backup", file)
		}
	}
	if there && !force {
		return fileErrorf("%s exists already; name another file, or replace an older backup with --force", file)
	}
	if err := checkUnused(ctx, file); err != nil {
		return FileError{err}
	}
	if there {
		return checkReplaced(ctx, file)
	}
	return nil
}

// checkReplaced returns an error unless a file is a backup, as seal has left it. One that was served is a store.
func checkReplaced(ctx context.Context, file string) error {
	const journal = 1 // of the format versions; a server sets them to that of a write-ahead log
	header, err := readAt(file, 0, headerSize)
	if err != nil {
		return FileError{err}
	}
	if len(header) == headerSize && string(header[:len(headerMagic)]) == headerMagic && header[18] == journal {
		db, err := backupDB(file, "&mode=ro&immutable=1")
		if err == nil {
			_, err = readManifest(ctx, db)
			err = errors.Join(err, db.Close())
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	return fileErrorf("%s is not a backup, and --force replaces only backups; name another file", file)
}

// besideSuffixes are the suffixes of files that are read together with a SQLite store.
var besideSuffixes = []string{"-journal", "-wal", "-wal" + setAside, "-shm"}

// checkUnused returns an error if a store must not be written to a file, which may exist: if a process has opened
// it, if it is beside a store and belongs to it, or if files beside it belong to an earlier store with its name,
// whose log would change the new one.
func checkUnused(ctx context.Context, file string) error {
	if name, err := filepath.EvalSymlinks(file); err == nil {
		file = name
	}
	used, err := locked(ctx, file)
	if err != nil {
		return explainRead(file, err)
	}
	if used {
		return fmt.Errorf("a server uses %s; name another file", file)
	}
	var beside []string
	for _, suffix := range besideSuffixes {
		if _, err := os.Lstat(file + suffix); err == nil {
			beside = append(beside, file+suffix)
		}
	}
	if len(beside) > 0 && exists(file) {
		beside = append([]string{file}, beside...)
	}
	if len(beside) > 0 {
		return fmt.Errorf("%s: these files belong to an earlier store, and would damage a new one; move them away together, or name another file", strings.Join(beside, ", "))
	}
	for _, suffix := range append([]string{".lock"}, besideSuffixes...) {
		if of, ok := strings.CutSuffix(file, suffix); ok && exists(of) {
			return fmt.Errorf("the name %s is that of a file of the store %s; name another file", file, of)
		}
	}
	return nil
}

// publish syncs a file that was made and gives it its name, unless check returns an error. Without force it
// replaces no file, also none that was made meanwhile.
func publish(made, file string, force bool, check func() error) error {
	if err := errors.Join(syncFile(made), check()); err != nil {
		return err
	}
	linked := errors.ErrUnsupported
	if !force {
		linked = os.Link(made, file) // fails if the file exists; the caller removes the other name
	}
	switch {
	case errors.Is(linked, fs.ErrExist):
		return fileErrorf("%s was made by another program meanwhile; name another file", file)
	case linked != nil: // or the file system has no links
		if err := os.Rename(made, file); err != nil {
			return FileError{err}
		}
	}
	return syncFolder(file)
}

// syncFile syncs a file.
func syncFile(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0) //nolint:gosec // a file of the caller
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// explainFull says what to do if an error means that the disk of a new file is full.
func explainFull(file string, err error) error {
	full := noRoom(err) || errors.Is(err, syscall.ENOSPC)
	if full && errors.Is(err, ErrPartial) {
		return fileErrorf("the disk of %s is full; free space, and %w", file, ErrPartial)
	}
	if full {
		return fileErrorf("the disk of %s is full; free space, or name a file on another disk", file)
	}
	return err
}

// backupSQLite copies a SQLite store to a new file.
func backupSQLite(ctx context.Context, source, made string) (err error) {
	file, used, err := findSQLite(ctx, source)
	if err != nil {
		return err
	}
	if !used {
		return backupUnused(ctx, file, made)
	}
	v, err := viewSQLite(ctx, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if err := checkSame(ctx, v.db); err != nil {
		return err
	}
	return vacuumInto(ctx, v.db, made)
}

// backupUnused copies a SQLite store that no process uses, by a copy of its files: opening the store itself would
// apply its log to it, even a damaged one. It makes no file beside the store.
func backupUnused(ctx context.Context, file, made string) (err error) {
	dir, err := os.MkdirTemp("", "team-server-")
	if err != nil {
		return fmt.Errorf("make a folder for a copy of %s: %w", file, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	copied, err := copyStore(ctx, file, dir)
	if err != nil {
		return err
	}
	if used, err := locked(ctx, file); used || err != nil {
		return errors.Join(err, errors.New("a server has opened the store while it was copied; try again"))
	}
	lost, err := checkFile(copied)
	if err != nil {
		return fmt.Errorf("%s cannot be used: %w", file, err)
	}
	v, err := viewFile(ctx, copied, file, "?_pragma=query_only(1)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if err = checkPages(ctx, v.db, file); lost != nil {
		lost.ofSource(file)
		err = lost.err(ctx, pgQuerier{v.db})
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("the store is damaged, so a backup would be, too: %w", err)
	}
	if err == nil {
		err = checkSame(ctx, v.db)
	}
	if err == nil {
		err = vacuumInto(ctx, v.db, made)
	}
	return err
}

// vacuumInto copies a database, as it is at the start of the copy, to a file that only its owner can read.
func vacuumInto(ctx context.Context, db *sql.DB, made string) error {
	f, err := os.OpenFile(made, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // in a folder of our own
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the statement has ended
	for _, text := range []string{`PRAGMA query_only = 0`, `VACUUM INTO ` + quoted(made), `PRAGMA query_only = 1`} {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// quoted returns a text as a literal of SQL.
func quoted(s string) string { return `'` + strings.ReplaceAll(s, `'`, `''`) + `'` }

// backupPostgres copies a database to a new SQLite store, in one transaction that sees the database as it is at
// its start.
func backupPostgres(ctx context.Context, raw, made string, log *zap.Logger) (err error) {
	v, err := OpenView(ctx, raw)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	to, err := Open(ctx, store.SQLite+made, Config{Sealed: true, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if err := to.unsync(ctx); err != nil {
		return err
	}
	tx, err := v.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return scrub(err)
	}
	defer tx.Rollback()                        //nolint:errcheck // it has only read
	if err := checkSame(ctx, tx); err != nil { // in the snapshot, because a server may migrate the store now
		return scrub(err)
	}
	if _, err = copyAll(ctx, v.store(pgQuerier{tx}), to); err != nil {
		return fmt.Errorf("read the database: %w", scrub(err))
	}
	return nil
}

// unsync makes the commits to a SQLite file faster. The caller syncs the file at the end, before it gets its name.
func (s *Store) unsync(ctx context.Context) error {
	d, ok := s.db.(*sqliteDB)
	if !ok {
		return nil
	}
	_, err := d.writes.exec(ctx, `PRAGMA synchronous = OFF`)
	return err
}

// backupDB opens the file of a backup.
func backupDB(file, options string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?_pragma=busy_timeout(5000)"+options)
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

// sealedTables returns the tables that are in the manifest of a backup.
func sealedTables() []tableManifest {
	all := []tableManifest{
		{Name: "setting", Columns: "name, value", Key: "name"}, {Name: "halt_version", Columns: "one, version", Key: "one"},
		{Name: "catalog_version", Columns: "one, version, change", Key: "one"},
	}
	for _, t := range tables {
		all = append(all, tableManifest{Name: t.name, Columns: t.columns, Key: t.key})
	}
	return all
}

// seal makes a copy of a store a backup: one file that has its manifest.
func seal(ctx context.Context, file string, at time.Time) (err error) {
	db, err := backupDB(file, "&_pragma=synchronous(FULL)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var mode string
	if err := db.QueryRowContext(ctx, `PRAGMA journal_mode = DELETE`).Scan(&mode); err != nil { // no files beside it
		return err
	}
	if _, err := db.ExecContext(ctx, `DELETE FROM setting WHERE name = $1`, backupSetting); err != nil { // of a backup that is served
		return err
	}
	m := manifest{At: at, Tables: sealedTables()}
	if err := db.QueryRowContext(ctx, `SELECT max(version_id) FROM goose_db_version`).Scan(&m.Schema); err != nil {
		return err
	}
	for i := range m.Tables {
		if err := m.Tables[i].measure(ctx, db); err != nil {
			return err
		}
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `INSERT INTO setting (name, value) VALUES ($1, $2)`, backupSetting, text)
	return err
}

// identifier is a name of a table or column, or a list of columns.
func identifier(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_, ") == "" && !strings.Contains(s, "--")
}

// measure sets the number of rows and the sum of a table.
func (t *tableManifest) measure(ctx context.Context, db *sql.DB) error {
	if !identifier(t.Name) || !identifier(t.Columns) || !identifier(t.Key) {
		return errors.New("its manifest is damaged")
	}
	rows, err := db.QueryContext(ctx, `SELECT `+t.Columns+` FROM `+t.Name+` ORDER BY `+t.Key) //nolint:gosec // identifier has checked the names
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // Err reports it
	n := strings.Count(t.Columns, ",") + 1
	row, dest := make([]any, n), make([]any, n)
	for i := range row {
		dest[i] = &row[i]
	}
	sum := sha256.New()
	t.Rows = 0
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		if t.Name == "setting" && fmt.Sprint(row[0]) == backupSetting {
			continue
		}
		for _, value := range row {
			addValue(sum, value)
		}
		t.Rows++
	}
	t.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return rows.Err()
}

// addValue adds a value of a row to a sum, with its kind and length.
func addValue(sum hash.Hash, value any) {
	var kind byte
	var b []byte
	switch v := value.(type) {
	case nil:
	case []byte:
		kind, b = 'b', v
	case string:
		kind, b = 't', []byte(v)
	default:
		kind, b = 'n', fmt.Append(nil, v)
	}
	sum.Write(binary.BigEndian.AppendUint64([]byte{kind}, uint64(len(b))))
	sum.Write(b)
}

// ErrNoBackup is wrapped by the error for a file that is not a backup, or is damaged.
var ErrNoBackup = errors.New("it is not a complete backup")

// readManifest reads the manifest of a backup.
func readManifest(ctx context.Context, db *sql.DB) (m manifest, err error) {
	var text []byte
	err = db.QueryRowContext(ctx, `SELECT value FROM setting WHERE name = $1`, backupSetting).Scan(&text)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return m, fmt.Errorf("%w: it has no manifest; a store that no server uses is copied with migrate --from sqlite:FILE", ErrNoBackup)
	case err != nil && ctx.Err() == nil:
		return m, fmt.Errorf("%w: %w", ErrNoBackup, err)
	case err != nil:
		return m, err
	case json.Unmarshal(text, &m) != nil || len(m.Tables) == 0:
		return m, fmt.Errorf("%w: its manifest is damaged", ErrNoBackup)
	}
	return m, nil
}

// verifyBackup checks each row of a backup against its manifest, and the structure of the file.
func verifyBackup(ctx context.Context, file string) (c Content, err error) {
	db, err := backupDB(file, "&mode=ro&immutable=1")
	if err != nil {
		return Content{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	m, err := readManifest(ctx, db)
	if err != nil {
		return Content{}, err
	}
	known, err := knownSchema()
	if err != nil {
		return Content{}, err
	}
	if m.Schema > known {
		return Content{}, newerSchema(m.Schema, known)
	}
	found, err := findings(ctx, db, fmt.Sprintf("PRAGMA integrity_check(%d)", maxFindings))
	if err = cmp.Or(context.Cause(ctx), err); err != nil {
		return Content{}, err
	}
	if len(found) > 0 {
		return Content{}, fmt.Errorf("%w: it is damaged: %s", ErrNoBackup, strings.Join(found, "; "))
	}
	c = Content{At: m.At, Schema: m.Schema}
	for _, t := range m.Tables {
		is := t
		err := is.measure(ctx, db)
		if ctx.Err() != nil {
			return Content{}, context.Cause(ctx)
		}
		if err != nil {
			return Content{}, fmt.Errorf("%w: table %s cannot be read: %w", ErrNoBackup, t.Name, err)
		}
		if is != t {
			return Content{}, fmt.Errorf("%w: table %s is not what was written: it has %d rows of %d, or a changed one; use another backup", ErrNoBackup, t.Name, is.Rows, t.Rows)
		}
		c.Rows += t.Rows
	}
	return c, c.count(ctx, db, file, m)
}

// count sets the numbers of a backup.
func (c *Content) count(ctx context.Context, db *sql.DB, file string, m manifest) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	c.Bytes = info.Size()
	for _, t := range m.Tables {
		for name, into := range map[string]*int64{
			"run": &c.Tasks, "conversation": &c.Conversations, "board": &c.Boards, "catalog": &c.Catalog, "api_key": &c.Keys, "push_config": &c.Webhooks, "audit": &c.Audit,
		} {
			if t.Name == name {
				*into = t.Rows
			}
		}
	}
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM run WHERE ended IS NULL`).Scan(&c.Unfinished); err != nil {
		return err
	}
	owners, err := column(ctx, db, `SELECT DISTINCT owner FROM run`)
	accounts := map[string]bool{}
	for _, owner := range owners {
		account, _, _ := strings.Cut(owner, "/")
		accounts[account] = true
	}
	c.Accounts = int64(len(accounts))
	if err == nil {
		c.EncryptionKeys, err = column(ctx, db, `SELECT substr(name, `+fmt.Sprint(len(keySetting)+1)+`) FROM setting WHERE substr(name, 1, `+fmt.Sprint(len(keySetting))+`) = '`+keySetting+`' ORDER BY name`)
	}
	return err
}

// Restore verifies a backup and copies it to an empty store: a database without rows, or a file that does not
// exist or is an empty store, and has no files of another store beside it. Runs that had not ended at the backup
// continue when a server opens the store. If it fails, a file that did not exist does not exist. The error wraps
// ErrPartial if a store that existed must be emptied before the next try.
func Restore(ctx context.Context, file, raw string, log *zap.Logger) (c Content, err error) {
	if err := CheckURL(raw); err != nil {
		return Content{}, err
	}
	target, isFile := strings.CutPrefix(raw, store.SQLite)
	if isFile {
		if err := checkRestorable(ctx, target); err != nil {
			return Content{}, err
		}
	}
	dir, err := os.MkdirTemp("", "team-server-")
	if err != nil {
		return Content{}, fmt.Errorf("make a folder for a copy of %s: %w", file, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	copied := filepath.Join(dir, "store.db") // the file itself may be on a medium that cannot be written
	if err := copyBackup(ctx, file, copied); err != nil {
		return Content{}, err
	}
	if c, err = verifyBackup(ctx, copied); err != nil {
		return Content{}, fileErrorf("%s: %w", file, err)
	}
	from, err := Open(ctx, store.SQLite+copied, Config{Sealed: true, Log: log})
	if err != nil {
		return Content{}, fileErrorf("%s: open a copy: %w", file, err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if !isFile || exists(target) {
		err = restoreInto(ctx, from, raw, Copy, log)
	} else {
		err = restoreFile(ctx, from, target, log)
	}
	if err != nil && isFile {
		err = explainFull(target, err)
	}
	if err == nil && isFile {
		err = checkRestored(ctx, target)
	}
	return c, err
}

// copyBackup copies the file of a backup.
func copyBackup(ctx context.Context, file, copied string) error {
	switch info, err := os.Stat(file); {
	case errors.Is(err, fs.ErrNotExist):
		return fileErrorf("the file %s does not exist; check the path", file)
	case err != nil:
		return FileError{err}
	case !info.Mode().IsRegular():
		return fileErrorf("%s is not a regular file; name the file of a backup", file)
	}
	if err := copyFile(ctx, file, copied); err != nil {
		return FileError{explainCopy(file, err)}
	}
	return nil
}

// checkRestorable returns an error if a backup must not be restored into a file.
func checkRestorable(ctx context.Context, file string) error {
	if err := checkUnused(ctx, file); err != nil {
		return err
	}
	if !exists(file) {
		if _, err := os.Lstat(file); err == nil {
			return fmt.Errorf("%s is a link to a file that does not exist; name the file itself", file)
		}
		return nil
	}
	v, err := viewSQLite(ctx, file)
	if errors.Is(err, ErrNoStore) { // it is empty
		return nil
	}
	if err != nil {
		return err
	}
	defer v.Close() //nolint:errcheck // only read
	have, known, err := v.Schema(ctx)
	if err != nil || have != known { // Copy checks it after its schema is updated
		return err
	}
	return v.store(pgQuerier{v.db}).checkEmpty(ctx)
}

// checkRestored opens a restored store and checks its structure.
func checkRestored(ctx context.Context, file string) (err error) {
	v, err := viewSQLite(ctx, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if !v.InUse { // by a server that was started at once
		if err := checkUnused(ctx, v.File); err != nil {
			return err
		}
	}
	err = checkSame(ctx, v.db)
	if err == nil {
		err = checkPages(ctx, v.db, file)
	}
	if err == nil {
		err = checkIndexes(ctx, v.db, file)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("the restored store cannot be used; check the disk, move %s away and restore it again: %w", file, err)
	}
	return err
}

// restoreInto copies a backup to a store.
func restoreInto(ctx context.Context, from *Store, raw string, copyTo func(ctx context.Context, from, to *Store) (int64, error), log *zap.Logger) (err error) {
	to, err := Open(ctx, raw, Config{Sealed: true, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	_, err = copyTo(ctx, from, to)
	return err
}

// restoreNew copies a backup to a new store whose file the caller syncs afterwards.
func restoreNew(ctx context.Context, from, to *Store) (int64, error) {
	if err := to.unsync(ctx); err != nil {
		return 0, err
	}
	return copyAll(ctx, from, to)
}

// restoreFile copies a backup to a file that does not exist, and which gets its name when it is complete.
func restoreFile(ctx context.Context, from *Store, file string, log *zap.Logger) (err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("make the folder of the store: %w", err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), ".team-server-restore-")
	if err != nil {
		return fmt.Errorf("make a folder beside %s: %w", file, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	made := filepath.Join(dir, "store.db")
	if err := restoreInto(ctx, from, store.SQLite+made, restoreNew, log); err != nil {
		return err
	}
	if exists(made + "-wal") {
		return errors.New("the log of the restored store was not written back; check the disk, and try again")
	}
	return publish(made, file, false, func() error { return checkRestorable(ctx, file) })
}
