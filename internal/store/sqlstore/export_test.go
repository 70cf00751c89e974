package sqlstore

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Pragmas opens a store and returns how its writer is set up.
func Pragmas(ctx context.Context, t testing.TB, url string) (mode string, synchronous int) {
	t.Helper()
	s, err := Open(ctx, url, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = s.db.do(ctx, func(ctx context.Context, q querier) error {
		if err := q.scan(ctx, []any{&mode}, `PRAGMA journal_mode`); err != nil {
			return err
		}
		return q.scan(ctx, []any{&synchronous}, `PRAGMA synchronous`)
	})
	if err != nil {
		t.Fatal(err)
	}
	return mode, synchronous
}

// Rows counts what all tables hold.
func (s *Store) Rows(ctx context.Context, t testing.TB) (n int) {
	t.Helper()
	for _, table := range []string{"task", "run", "replica", "event", "inbox", "request", "definition", "setting", "conversation", "history", "conversation_state", "push_config", "push_dead", "catalog", "question", "halt", "halt_task", "blob"} {
		var rows int
		if err := s.db.reader().scan(ctx, []any{&rows}, `SELECT count(*) FROM `+table); err != nil {
			t.Fatal(err)
		}
		n += rows
	}
	return n
}

// Count counts the rows of a table.
func (s *Store) Count(ctx context.Context, t testing.TB, table string) (n int64) {
	t.Helper()
	if err := s.db.reader().scan(ctx, []any{&n}, `SELECT count(*) FROM `+table); err != nil {
		t.Fatal(err)
	}
	return n
}

// Groups counts the transactions of SQLite's writer.
func (s *Store) Groups() int64 { return s.db.(*sqliteDB).groups.Load() }

// CutListeners ends the connections of all replicas that listen.
func CutListeners(ctx context.Context, t testing.TB, s *Store) {
	t.Helper()
	_, err := s.db.(*postgresDB).pool.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ILIKE 'LISTEN%' AND application_name = 'team-server'`)
	if err != nil {
		t.Fatal(err)
	}
}

// Largest returns the size in bytes of the largest event or snapshot as it is stored, without its blobs.
func (s *Store) Largest(ctx context.Context, t testing.TB) (n int) {
	t.Helper()
	err := s.db.reader().scan(ctx, []any{&n}, `SELECT max(size) FROM (SELECT length(body) AS size FROM event UNION ALL SELECT length(snap) FROM task) AS sizes`)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Exec changes the database behind the store's back.
func (s *Store) Exec(ctx context.Context, t testing.TB, text string) {
	t.Helper()
	err := s.db.do(ctx, func(ctx context.Context, q querier) error {
		_, err := q.exec(ctx, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// SealedUnder returns how many stored secrets each key has encrypted, by its id; "" is the key in the store.
func (s *Store) SealedUnder(ctx context.Context, t testing.TB) map[string]int {
	t.Helper()
	n := map[string]int{}
	err := each(ctx, s.db.reader(), func() { clear(n) }, func(r *sql.Rows) error {
		var body []byte
		err := r.Scan(&body)
		id, _ := parseSealed(body)
		n[id]++
		return err
	}, `SELECT body FROM push_config UNION ALL SELECT value FROM setting WHERE name = 'page_token_key'`)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Registered returns the ids of the keys under which secrets may be encrypted.
func (s *Store) Registered(ctx context.Context, t testing.TB) []string {
	t.Helper()
	known, err := s.registered(ctx, s.db.reader())
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(known))
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

func (c *Counts) add(trips, commits int, texts ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trips += trips
	c.commits += commits
	for _, text := range texts {
		c.statements[text]++
	}
}

// CountStatements counts from now on, and stops the background work, which would be counted too.
func (s *Store) CountStatements() *Counts {
	s.stop()
	s.work.Wait()
	c := &Counts{statements: map[string]int{}}
	s.db = counting{s.db, c}
	return c
}

// counting is a database whose statements are counted.
type counting struct {
	database
	counts *Counts
}

func (d counting) reader() querier { return countedQuerier{d.database.reader(), d.counts} }

func (d counting) add(s source) error { return d.database.add(countedSource{s, d.counts}) }

func (d counting) do(ctx context.Context, f func(context.Context, querier) error) error {
	d.counts.add(2, 1) // BEGIN and COMMIT
	return d.database.do(ctx, d.counts.plan(f))
}

func (d counting) statement(ctx context.Context, f func(context.Context, querier) error) error {
	d.counts.add(0, 1)
	return d.database.statement(ctx, d.counts.plan(f))
}

func (d counting) tell(root, audience string) {
	if !d.single() {
		d.counts.add(1, 0, "SELECT pg_notify")
	}
	d.database.tell(root, audience)
}

// plan returns f with a counted querier.
func (c *Counts) plan(f func(context.Context, querier) error) func(context.Context, querier) error {
	return func(ctx context.Context, q querier) error { return f(ctx, countedQuerier{q, c}) }
}

// countedSource counts the statements of changes: all of a change are one trip.
type countedSource struct {
	source
	*Counts
}

func (s countedSource) take() *op {
	o := s.source.take()
	switch {
	case o == nil:
	case o.plan != nil:
		s.add(2, 1)
		o.plan = s.plan(o.plan)
	default:
		texts := make([]string, len(o.stmts))
		for i, st := range o.stmts {
			texts[i] = st.text
		}
		s.add(1, 1, texts...)
	}
	return o
}

// countedQuerier counts statements that run by themselves.
type countedQuerier struct {
	querier
	*Counts
}

func (q countedQuerier) exec(ctx context.Context, text string, args ...any) (int64, error) {
	q.add(1, 0, text)
	return q.querier.exec(ctx, text, args...)
}

func (q countedQuerier) query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	q.add(1, 0, text)
	return q.querier.query(ctx, text, args...)
}

func (q countedQuerier) scan(ctx context.Context, dest []any, text string, args ...any) error {
	q.add(1, 0, text)
	return q.querier.scan(ctx, dest, text, args...)
}
