package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	goosedb "github.com/pressly/goose/v3/database"
)

//go:embed migrations/*.sql
var migrations embed.FS

// errNewer means that the database was written by a later version of the program.
var errNewer = errors.New("the store was written by a newer version")

// errOlder means that the schema must be updated, but the store must not be written. errNoSchema
// means that not even the schema can be read.
var (
	errOlder    = errors.New("what can be read has an older schema, and a damaged store is not written")
	errNoSchema = errors.New("the schema is in the damaged part, so nothing of the store can be read")
)

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

// migrate updates the schema to the version of this program. It rejects a newer schema,
// and an older one if the store accepts no writes.
func migrate(ctx context.Context, db *sql.DB, dialect goose.Dialect, readOnly bool, opts ...goose.ProviderOption) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(dialect, db, files, append(opts, goose.WithDisableGlobalRegistry(true))...)
	if err != nil {
		return fmt.Errorf("prepare the schema: %w", err)
	}
	have, want, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("read the schema's version: %w", err)
	}
	if have > want {
		return fmt.Errorf("%w of team-server: its schema is %d, this version knows %d; start the newer version, or use another store", errNewer, have, want)
	}
	if readOnly {
		if have < want {
			return fmt.Errorf("%w: it is %d, and this version needs %d", errOlder, have, want)
		}
		return nil
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("bring the schema to version %d: %w", want, err)
	}
	return nil
}
