package db

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"

	"github.com/pressly/goose/v3"
	goosedb "github.com/pressly/goose/v3/database"
)

//go:embed migrations/*.sql
var migrations embed.FS

// errNewer means that the database was written by a later version of the program.
var errNewer = errors.New("the store was written by a newer version")

// beginSchema records in an empty SQLite file that no migration has run. goose would do
// so too, but would retry after a disk error.
func beginSchema(ctx context.Context, db *sql.DB) error {
	versions, err := goosedb.NewStore(goosedb.DialectSQLite3, goose.DefaultTablename)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err = versions.CreateVersionTable(ctx, tx); err == nil {
		err = versions.Insert(ctx, tx, goosedb.InsertRequest{Version: 0})
	}
	if err != nil {
		return errors.Join(fmt.Errorf("create the table of the schema's version: %w", err), tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("create the table of the schema's version: %w", err)
	}
	return nil
}

// oldestUser matches the line of a migration that names the oldest schema version whose programs
// may use a store that has the migration.
var oldestUser = regexp.MustCompile(`(?m)^-- Programs that know schema (\d+) or later may use the result\.$`)

// oldestUserOf returns the oldest schema version whose programs may use a store with all migrations
// in files: the highest one that a migration names.
func oldestUserOf(files fs.FS) (oldest int64, err error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return 0, err
		}
		m := oldestUser.FindSubmatch(text)
		if m == nil {
			return 0, fmt.Errorf("migration %s does not name the oldest program that may use its result", name)
		}
		n, err := strconv.ParseInt(string(m[1]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("migration %s: %w", name, err)
		}
		oldest = max(oldest, n)
	}
	return oldest, nil
}

// oldestSetting is the name of the setting with the oldest schema version whose programs may use the
// store: five digits, so that the order of its bytes is that of the versions.
const oldestSetting = "oldest_schema"

// raiseOldest stores a version as oldestSetting, unless a later one is stored.
const raiseOldest = `INSERT INTO setting (name, value) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE setting.value < excluded.value`

// oldestValue returns the value of oldestSetting for a version.
func oldestValue(version int64) []byte { return fmt.Appendf(nil, "%05d", version) }

// checkNewer returns an error unless programs that know the schema up to version want may use the store, whose
// schema is newer.
func checkNewer(ctx context.Context, db *sql.DB, have, want int64) error {
	var oldest []byte
	err := db.QueryRowContext(ctx, `SELECT value FROM setting WHERE name = $1`, oldestSetting).Scan(&oldest)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("read which programs may use the store: %w", err)
	}
	return checkOldest(have, want, oldest)
}

// checkOldest returns an error unless programs that know the schema up to version want may use a store whose schema has
// the version have. oldest is the store's oldestSetting; nil if it has none. That is written before the tables are
// changed, so have may be the older version still. A newer schema whose last migration was made by a program that did
// not write oldestSetting is not used.
func checkOldest(have, want int64, oldest []byte) error {
	if oldest == nil && have <= want {
		return nil
	}
	if least, err := strconv.ParseInt(string(oldest), 10, 64); err != nil || least > want {
		return newerSchema(max(have, least), want)
	}
	return nil
}

// migrate updates the schema to the version of this program. It rejects a newer schema unless the
// store says that this program may use it.
func migrate(ctx context.Context, db *sql.DB, dialect goose.Dialect, opts ...goose.ProviderOption) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(dialect, db, files, append(opts, goose.WithDisableGlobalRegistry(true))...)
	if err != nil {
		return fmt.Errorf("prepare the schema: %w", err)
	}
	have, want, err := p.GetVersions(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("read the schema's version: %w", err)
	case have > want:
		return checkNewer(ctx, db, have, want)
	}
	if have < want {
		err = announceOldest(ctx, db, p, files)
	}
	if err == nil {
		_, err = p.Up(ctx)
	}
	if err != nil {
		return fmt.Errorf("bring the schema to version %d: %w", want, err)
	}
	return nil
}

// announceOldest stores which programs may use the schema of this program. It is called before the
// migrations are made, so that a program that finds them also finds whether it may use the result.
func announceOldest(ctx context.Context, db *sql.DB, p *goose.Provider, files fs.FS) error {
	oldest, err := oldestUserOf(files)
	if err != nil {
		return err
	}
	if _, err := p.UpTo(ctx, 1); err != nil { // creates the table of settings
		return err
	}
	_, err = db.ExecContext(ctx, raiseOldest, oldestSetting, oldestValue(oldest))
	return err
}

// knownSchema returns the schema version of this program, that of its last migration.
func knownSchema() (int64, error) {
	files, err := migrations.ReadDir("migrations")
	if err != nil {
		return 0, err
	}
	return goose.NumericComponent(files[len(files)-1].Name())
}

// CheckCurrent returns an error if the schema of the store is newer than this program, which then
// does not know all of the store's content.
func (d *DB) CheckCurrent(ctx context.Context) error {
	known, err := knownSchema()
	if err != nil {
		return err
	}
	var have int64
	if err := d.Reader().Scan(ctx, []any{&have}, `SELECT max(version_id) FROM goose_db_version`); err != nil {
		return err
	}
	if have > known {
		return newerSchema(have, known)
	}
	return nil
}

// newerSchema returns the error for a store whose schema is newer than this program.
func newerSchema(have, known int64) error {
	return fmt.Errorf("%w of team-server: its schema is %d, this version knows %d; start the newer version, or use another store", errNewer, have, known)
}
