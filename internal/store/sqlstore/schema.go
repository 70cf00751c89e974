package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// errNewer: the database was written by a later version of the program.
var errNewer = errors.New("the store was written by a newer version")

// migrate brings the schema to the version of this program. A newer one is refused.
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
	if err != nil {
		return fmt.Errorf("read the schema's version: %w", err)
	}
	if have > want {
		return fmt.Errorf("%w of team-server: its schema is %d, this version knows %d; start the newer version, or use another store", errNewer, have, want)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("bring the schema to version %d: %w", want, err)
	}
	return nil
}
