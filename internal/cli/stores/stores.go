// Package stores implements the commands over stores: copies, backups, the encryption of their secrets, and which engine
// drives their runs.
package stores

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"go.uber.org/zap/zapcore"

	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
)

// Commands are the commands over stores. They print to the console.
type Commands struct{ Console *console.Console }

// CheckURL returns a usage error if the value of a flag is not the URL of a store. "" is valid.
func CheckURL(flag, url string) error {
	if url == "" || store.CheckURL(url) == nil {
		return nil
	}
	return console.Usagef("--%s %s: %w", flag, store.Redacted(url), store.CheckURL(url))
}

// Migrate copies the content of a store to another, empty store and prints the number of rows. No
// server may use the stores meanwhile.
func (c *Commands) Migrate(ctx context.Context, from, to string) error {
	if err := migratable(from, to); err != nil {
		return err
	}
	rows, err := c.migrate(ctx, from, to)
	if err != nil {
		return err
	}
	from, to = store.Redacted(from), store.Redacted(to)
	if c.Console.JSON {
		return json.NewEncoder(c.Console.Out).Encode(struct {
			From string `json:"from"`
			To   string `json:"to"`
			Rows int64  `json:"rows"`
		}{from, to, rows})
	}
	_, err = fmt.Fprintf(c.Console.Out, "copied %d rows from %s to %s\n", rows, from, to)
	return err
}

func (c *Commands) migrate(ctx context.Context, from, to string) (rows int64, err error) {
	source, err := c.openMigrated(ctx, from)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, err := c.openMigrated(ctx, to)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if rows, err = sqlstore.Copy(ctx, source, target); err != nil {
		return 0, fmt.Errorf("copying %s to %s: %s", store.Redacted(from), store.Redacted(to), store.Conceal(store.Conceal(err.Error(), from), to))
	}
	return rows, nil
}

// MoveEngine has another kind of engine drive the runs of a store that servers share. No server may use it meanwhile.
func (c *Commands) MoveEngine(ctx context.Context, url, to string) (err error) {
	if to != engine.StoreEngine && to != engine.TemporalEngine {
		return console.Usagef("engine move needs --to store or --to temporal, not %q", to)
	}
	if err := CheckURL("store", url); err != nil {
		return err
	}
	if !store.IsPostgres(url) {
		return console.Usagef("engine move needs --store postgres://USER@HOST/DATABASE; the runs of other stores are always driven by their only server")
	}
	opened, err := c.openMigrated(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	if err := opened.MoveEngine(ctx, to); err != nil {
		return fmt.Errorf("moving the runs of %s: %s", store.Redacted(url), store.Conceal(err.Error(), url))
	}
	if c.Console.JSON {
		return json.NewEncoder(c.Console.Out).Encode(struct {
			Store  string `json:"store"`
			Engine string `json:"engine"`
		}{store.Redacted(url), to})
	}
	_, err = fmt.Fprintf(c.Console.Out, "the engine %s drives the runs of %s from now on\n", to, store.Redacted(url))
	return err
}

// openMigrated opens the store of a command for which no server may use it.
func (c *Commands) openMigrated(ctx context.Context, url string) (*sqlstore.Store, error) {
	opened, err := sqlstore.Open(ctx, url, sqlstore.Config{Sealed: true, Log: c.Console.Log(zapcore.ErrorLevel)})
	if err != nil {
		text := strings.Join(strings.Fields(store.Conceal(err.Error(), url)), " ")
		return nil, fmt.Errorf("cannot open the store %s: %s", store.Redacted(url), text)
	}
	return opened, nil
}

// migratable returns an error if the stores cannot or must not be copied.
func migratable(from, to string) error {
	if from == "" || to == "" {
		return console.Usagef("migrate needs --from URL and --to URL, for example --from sqlite:team.db --to postgres://ann@db.example/team")
	}
	for _, side := range []struct{ flag, url string }{{"from", from}, {"to", to}} {
		if side.url == store.MemoryURL {
			return console.Usagef("--%s memory: a memory store is lost when its process ends; use sqlite:FILE or postgres://USER@HOST/DATABASE", side.flag)
		}
		if err := CheckURL(side.flag, side.url); err != nil {
			return err
		}
	}
	if place(from) == place(to) {
		return console.Usagef("--from and --to are the same store; name another, empty one to copy to")
	}
	return mustExist(from)
}

// place returns a canonical name of a store, without the user and independent of the path used, so
// that two URLs of the same store are recognized.
func place(raw string) string {
	if file, ok := strings.CutPrefix(raw, store.SQLite); ok {
		if path, err := filepath.Abs(file); err == nil {
			file = path
		}
		if path, err := filepath.EvalSymlinks(file); err == nil {
			file = path
		}
		return store.SQLite + file
	}
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	u.Scheme, u.User = "postgres", nil
	if u.Port() == "" {
		u.Host += ":5432"
	}
	return u.String()
}

// Backup writes a backup of a SQLite store to a file. A server may use the store.
func (c *Commands) Backup(ctx context.Context, url, file string) error {
	switch url {
	case "":
		return console.Usagef("backup needs --store sqlite:FILE, for example --store sqlite:team.db")
	case store.MemoryURL:
		return console.Usagef("--store memory: a memory store belongs to one process; use sqlite:FILE")
	}
	if err := CheckURL("store", url); err != nil {
		return err
	}
	from, ok := strings.CutPrefix(url, store.SQLite)
	if !ok {
		return console.Usagef("backup copies SQLite stores; make backups of PostgreSQL with pg_dump or with archived logs, see docs/operation.md")
	}
	if err := db.Backup(ctx, from, file); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return fmt.Errorf("%s: %w", url, err)
	}
	if c.Console.JSON {
		return json.NewEncoder(c.Console.Out).Encode(struct {
			Store string `json:"store"`
			File  string `json:"file"`
		}{url, file})
	}
	_, err := fmt.Fprintf(c.Console.Out, "backed up %s to %s\n", url, file)
	return err
}
