package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// Stats are numbers about what a store contains. A number that could not be read in time is missing.
type Stats struct {
	// Schema is the version of the store's schema, and Known the one that this program knows.
	Schema int64 `json:"schema"`
	Known  int64 `json:"known_schema"`
	// Bytes is the size on disk, of a SQLite store with its log.
	Bytes int64 `json:"bytes"`
	// InUse reports whether a server has opened a SQLite store; of PostgreSQL, whether there are Replicas.
	InUse    bool  `json:"in_use"`
	Replicas int64 `json:"replicas"`
	// Tasks are the root tasks by state, with the times of the first and the last change of a status.
	Tasks []StateStats `json:"tasks"`
	// Tables are the numbers of records.
	Tables []TableStats `json:"tables"`
	// Accounts are those with the most stored bytes; AllAccounts is the number of all.
	Accounts    []AccountStats `json:"accounts"`
	AllAccounts int            `json:"all_accounts"`
	// Missing are the numbers that could not be read in time.
	Missing []string `json:"missing,omitempty"`
}

// StateStats are numbers about the tasks in a state.
type StateStats struct {
	State  string    `json:"state"`
	Count  int64     `json:"count"`
	Oldest time.Time `json:"oldest"`
	Newest time.Time `json:"newest"`
}

// TableStats are numbers about a kind of records.
type TableStats struct {
	Name string `json:"name"`
	Rows int64  `json:"rows"`
	// Estimated means that Rows is what the database has estimated.
	Estimated bool `json:"estimated,omitempty"`
	// Bytes is the size with all indexes, in PostgreSQL only.
	Bytes int64 `json:"bytes,omitempty"`
}

// AccountStats are numbers about an account.
type AccountStats struct {
	Account string `json:"account"`
	Tasks   int64  `json:"tasks"`
	Open    int64  `json:"open"`
	// Bytes is the size of the events of its tasks.
	Bytes int64 `json:"bytes"`
}

// counted are the kinds of records that Stats counts. table is the one that is counted as a whole, or query
// counts rows with an index.
var counted = []struct{ name, table, query string }{
	{"journals", "run", ""}, {"events", "event", ""}, {"blobs", "blob", ""}, {"inbox", "inbox", ""},
	{"conversations", "conversation", ""}, {"conversation entries", "history", ""},
	{"boards", "board", ""}, {"work items", "work_item", ""}, {"board events", "board_event", ""},
	{"audit records", "audit", ""}, {"costs", "cost", ""}, {"teams and agents of the API", "catalog", ""}, {"API keys", "api_key", ""},
	{"webhooks", "push_config", ""},
	{"webhooks with notifications to deliver", "", `SELECT count(*) FROM push_config WHERE due IS NOT NULL`},
	{"notifications given up", "push_dead", ""},
	{"parked runs", "", `SELECT count(*) FROM run WHERE parked IS NOT NULL`},
}

// exactRows is the number of rows up to which a table of PostgreSQL is counted. Beyond it, the estimate of the
// database is returned.
const exactRows = 100_000

// Stats reads numbers about the store, for the accounts with the most stored bytes, top of them. What cannot
// be read before ctx ends is missing.
func (v *View) Stats(ctx context.Context, top int) (Stats, error) {
	s := Stats{Tasks: []StateStats{}, Tables: []TableStats{}, Accounts: []AccountStats{}}
	var err error
	if s.Schema, s.Known, err = v.Schema(ctx); err != nil {
		return s, explainRights(scrub(err))
	}
	for _, part := range []struct {
		name string
		read func(context.Context, *Stats) error
	}{
		{"size", v.readSize}, {"tasks", v.readTasks}, {"accounts", func(ctx context.Context, s *Stats) error { return v.readAccounts(ctx, s, top) }},
	} {
		if err := v.within(ctx, &s, part.name, func(ctx context.Context) error { return part.read(ctx, &s) }); err != nil {
			return s, err
		}
	}
	for _, c := range counted {
		err := v.within(ctx, &s, c.name, func(ctx context.Context) error {
			t := TableStats{Name: c.name}
			if err := v.countRows(ctx, &t, c.table, c.query); err != nil {
				return err
			}
			s.Tables = append(s.Tables, t)
			return nil
		})
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// within reads a part of s. If the time is over, the part is missing. So is what an older schema does not have.
func (v *View) within(ctx context.Context, s *Stats, name string, read func(context.Context) error) error {
	err := read(ctx)
	if err != nil && (errors.Is(ctx.Err(), context.DeadlineExceeded) || s.Schema != s.Known) {
		s.Missing = append(s.Missing, name)
		return nil
	}
	return explainRights(scrub(err))
}

// readSize reads the size on disk and who uses the store.
func (v *View) readSize(ctx context.Context, s *Stats) error {
	if v.File == "" {
		now, err := v.Now(ctx)
		if err != nil {
			return err
		}
		if err := v.db.QueryRowContext(ctx, `SELECT count(*) FROM replica WHERE expires > $1`, now.UnixMilli()).Scan(&s.Replicas); err != nil {
			return err
		}
		s.InUse = s.Replicas > 0
		return v.db.QueryRowContext(ctx, `SELECT pg_database_size(current_database())`).Scan(&s.Bytes)
	}
	s.InUse = v.InUse
	for _, suffix := range []string{"", "-wal"} {
		if info, err := os.Stat(v.File + suffix); err == nil {
			s.Bytes += info.Size()
		}
	}
	return nil
}

// readTasks counts the tasks by state.
func (v *View) readTasks(ctx context.Context, s *Stats) error {
	all := []StateStats{}
	err := each(ctx, pgQuerier{v.db}, func() { all = all[:0] }, func(r *sql.Rows) error {
		var state int32
		var count, oldest, newest int64
		err := r.Scan(&state, &count, &oldest, &newest)
		name := strings.TrimPrefix(a2av1.TaskState(state).String(), "TASK_STATE_")
		all = append(all, StateStats{name, count, time.Unix(0, oldest).UTC(), time.Unix(0, newest).UTC()})
		return err
	}, `SELECT state, count(*), min(status_at), max(status_at) FROM task GROUP BY state ORDER BY state`)
	s.Tasks = all
	return err
}

// readAccounts adds up the tasks of accounts.
func (v *View) readAccounts(ctx context.Context, s *Stats, top int) error {
	by := map[string]*AccountStats{}
	err := each(ctx, pgQuerier{v.db}, func() { clear(by) }, func(r *sql.Rows) error {
		var owner string
		var tasks, open, bytes int64
		if err := r.Scan(&owner, &tasks, &open, &bytes); err != nil {
			return err
		}
		name, _, _ := strings.Cut(owner, "/")
		a := by[name]
		if a == nil {
			a = &AccountStats{Account: name}
			by[name] = a
		}
		a.Tasks, a.Open, a.Bytes = a.Tasks+tasks, a.Open+open, a.Bytes+bytes
		return nil
	}, `SELECT owner, count(*), sum(CASE WHEN ended IS NULL THEN 1 ELSE 0 END), CAST(sum(bytes) AS BIGINT) FROM run GROUP BY owner`)
	if err != nil {
		return err
	}
	for _, a := range by {
		s.Accounts = append(s.Accounts, *a)
	}
	slices.SortFunc(s.Accounts, func(a, b AccountStats) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Account, b.Account))
	})
	s.AllAccounts = len(s.Accounts)
	s.Accounts = s.Accounts[:min(top, len(s.Accounts))]
	return nil
}

// countRows counts what a query counts, or the rows of a table.
func (v *View) countRows(ctx context.Context, t *TableStats, table, query string) error {
	if table != "" && v.File == "" {
		var estimate float64
		err := v.db.QueryRowContext(ctx, `SELECT reltuples, pg_total_relation_size(oid) FROM pg_class WHERE oid = to_regclass($1)`, table).Scan(&estimate, &t.Bytes)
		if err != nil {
			return fmt.Errorf("read the size of %s: %w", table, err)
		}
		if estimate > exactRows {
			t.Rows, t.Estimated = int64(estimate), true
			return nil
		}
	}
	if query == "" {
		query = `SELECT count(*) FROM ` + table
	}
	return v.db.QueryRowContext(ctx, query).Scan(&t.Rows)
}
