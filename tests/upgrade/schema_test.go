package upgrade

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// content is what the tables of a store hold: by table and column, the values of all rows.
type content map[string]map[string][]string

// TestP19_MigrationsOnlyAdd makes each migration on a store of the previous version, whose schema is
// brought back first as far as it goes. Every table, column and row from before a migration is there
// after it, with the same values.
func TestP19_MigrationsOnlyAdd(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			at := k.load(t, k.file)
			db, dialect := connect(t, at.URL)
			p, err := goose.NewProvider(dialect, db, os.DirFS("../../internal/store/sqlstore/migrations"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.DownTo(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			before := read(t, db, dialect)
			if len(before["task"]["id"]) == 0 || len(before["request"]["id"]) == 0 || len(before["event"]["body"]) == 0 {
				t.Fatal("the store has no old data")
			}
			for {
				done, err := p.UpByOne(t.Context())
				if errors.Is(err, goose.ErrNoNextVersion) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				after := read(t, db, dialect)
				for table, columns := range before {
					for column, values := range columns {
						if !slices.Equal(values, after[table][column]) { // in far less time than a comparison that finds out what differs
							t.Errorf("migration %d changes %s.%s: %s", done.Source.Version, table, column, gocmp.Diff(values, after[table][column]))
						}
					}
				}
				before = after
			}
			if len(before["run"]["parked"]) == 0 || len(before["task"]["brief"]) == 0 {
				t.Error("not all migrations were made")
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			s, err := sqlstore.Open(t.Context(), at.URL, sqlstore.Config{})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// connect opens the database of a store.
func connect(t *testing.T, url string) (*sql.DB, goose.Dialect) {
	t.Helper()
	if file, ok := strings.CutPrefix(url, "sqlite:"); ok {
		db, err := sql.Open("sqlite", "file:"+file)
		if err != nil {
			t.Fatal(err)
		}
		return db, goose.DialectSQLite3
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // a cached plan of SELECT * fails once there are more columns
	return stdlib.OpenDB(*config), goose.DialectPostgres
}

// read returns the content of all tables except that of goose. The rows of a table are in the order
// of the columns that every version of the table has.
func read(t *testing.T, db *sql.DB, dialect goose.Dialect) content {
	t.Helper()
	list := `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`
	if dialect == goose.DialectPostgres {
		list = `SELECT table_name AS name FROM information_schema.tables WHERE table_schema = current_schema()`
	}
	all := content{}
	for _, row := range query(t, db, list) {
		table := fmt.Sprint(row["name"])
		if table == goose.DefaultTablename {
			continue
		}
		all[table] = map[string][]string{}
		type row struct {
			key    string // what the rows are sorted by
			values map[string]any
		}
		var rows []row
		for _, values := range query(t, db, `SELECT * FROM `+table) {
			r := row{values: values}
			for _, column := range []string{"owner", "root", "message", "account", "team", "id", "scope", "context_id", "path", "config", "seq", "n", "name", "revision"} {
				r.key += fmt.Sprintf("%020v ", text(values[column]))
			}
			rows = append(rows, r)
		}
		slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.key, b.key) })
		for _, r := range rows {
			for column, value := range r.values {
				all[table][column] = append(all[table][column], text(value))
			}
		}
	}
	return all
}

// text returns a value of a column as text.
func text(value any) string {
	if b, ok := value.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(value)
}

// query returns the rows of a statement, by column.
func query(t *testing.T, db *sql.DB, text string) (all []map[string]any) {
	t.Helper()
	rows, err := db.QueryContext(context.WithoutCancel(t.Context()), text)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		row := map[string]any{}
		for i, column := range columns {
			row[column] = values[i]
		}
		all = append(all, row)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
