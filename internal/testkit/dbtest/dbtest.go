// Package dbtest looks into the databases of stores, for tests: it counts what a store asks of its database, explains
// statements, and changes records behind the back of a store.
package dbtest

import (
	"context"
	"database/sql"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/store/sqlstore/db"
)

// File returns the URL of an empty SQLite store.
func File(t testing.TB) string {
	t.Helper()
	return "sqlite:" + filepath.Join(t.TempDir(), "team.db")
}

// Open opens a database and closes it at the end of the test.
func Open(t testing.TB, url string) *db.DB {
	t.Helper()
	d, err := db.Open(context.Background(), url, db.Config{Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// Exec changes a database.
func Exec(t testing.TB, d *db.DB, texts ...string) {
	t.Helper()
	err := d.Do(context.Background(), func(ctx context.Context, q db.Querier) error {
		for _, text := range texts {
			if _, err := q.Exec(ctx, text); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Plan returns the plan of a query without arguments.
func Plan(t testing.TB, d *db.DB, query string) string {
	t.Helper()
	explain := "EXPLAIN "
	if d.Single {
		explain = "EXPLAIN QUERY PLAN "
	}
	var plan []string
	err := db.Each(context.Background(), d.Reader(), func() { plan = nil }, func(r *sql.Rows) error {
		columns, err := r.Columns()
		if err != nil {
			return err
		}
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(sql.RawBytes)
		}
		err = r.Scan(values...)
		plan = append(plan, string(*values[len(values)-1].(*sql.RawBytes)))
		return err
	}, explain+query)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(plan, "\n")
}

// Counts counts what a store asks of its database.
type Counts struct {
	mu         sync.Mutex
	statements map[string]int // by text; guarded by mu, like all fields below
	trips      int            // how often the store waits for an answer of PostgreSQL
	commits    int            // transactions that write
}

// Take returns the counts since the last call, per task of a number of tasks. The names of the statements are
// the first three words of each, with their number if it is not 1, in order.
func (c *Counts) Take(tasks int) (statements []string, trips, commits float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	named := map[string]int{}
	for text, n := range c.statements {
		words := strings.Fields(text)
		named[strings.Join(words[:min(3, len(words))], " ")] += n
	}
	for name, n := range named {
		if n != tasks {
			name += " x " + strconv.FormatFloat(float64(n)/float64(tasks), 'f', -1, 64)
		}
		statements = append(statements, name)
	}
	slices.Sort(statements)
	trips, commits = float64(c.trips)/float64(tasks), float64(c.commits)/float64(tasks)
	c.statements, c.trips, c.commits = map[string]int{}, 0, 0
	return statements, trips, commits
}

// Texts returns how many different statements were run since the last Take.
func (c *Counts) Texts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.statements)
}

func (c *Counts) add(trips, commits int, texts ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trips += trips
	c.commits += commits
	for _, text := range texts {
		c.statements[text]++
	}
}

// Count counts from now on.
func Count(d *db.DB) *Counts {
	c := &Counts{statements: map[string]int{}}
	d.Engine = counting{d.Engine, d.Single, c}
	return c
}

// counting is a database whose statements are counted.
type counting struct {
	db.Engine
	single bool
	counts *Counts
}

func (d counting) Reader() db.Querier { return countedQuerier{d.Engine.Reader(), d.counts} }

func (d counting) Add(s db.Source) error { return d.Engine.Add(countedSource{s, d.counts}) }

func (d counting) Do(ctx context.Context, f func(context.Context, db.Querier) error) error {
	d.counts.add(2, 1) // BEGIN and COMMIT
	return d.Engine.Do(ctx, d.counts.plan(f))
}

func (d counting) Statement(ctx context.Context, f func(context.Context, db.Querier) error) error {
	d.counts.add(0, 1)
	return d.Engine.Statement(ctx, d.counts.plan(f))
}

func (d counting) Tell(root, audience string) {
	if !d.single {
		d.counts.add(1, 0, "SELECT pg_notify")
	}
	d.Engine.Tell(root, audience)
}

// plan returns f with a counted querier.
func (c *Counts) plan(f func(context.Context, db.Querier) error) func(context.Context, db.Querier) error {
	return func(ctx context.Context, q db.Querier) error { return f(ctx, countedQuerier{q, c}) }
}

// countedSource counts the statements of changes: all of a change are one trip.
type countedSource struct {
	db.Source
	*Counts
}

func (s countedSource) Take() *db.Op {
	o := s.Source.Take()
	switch {
	case o == nil:
	case o.Plan != nil:
		s.add(2, 1)
		o.Plan = s.plan(o.Plan)
	default:
		texts := make([]string, len(o.Stmts))
		for i, st := range o.Stmts {
			texts[i] = st.Text
		}
		s.add(1, 1, texts...)
	}
	return o
}

// countedQuerier counts statements that run by themselves.
type countedQuerier struct {
	db.Querier
	*Counts
}

func (q countedQuerier) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	q.add(1, 0, text)
	return q.Querier.Exec(ctx, text, args...)
}

func (q countedQuerier) Query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	q.add(1, 0, text)
	return q.Querier.Query(ctx, text, args...)
}

func (q countedQuerier) Scan(ctx context.Context, dest []any, text string, args ...any) error {
	q.add(1, 0, text)
	return q.Querier.Scan(ctx, dest, text, args...)
}
