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
	"net/url"
	"os"
	"strings"
	"time"
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
