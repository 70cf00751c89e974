package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/testkit/pgtest"
)

// TestP11_ClaimsReadTheIndexOfEachOwner: a claim does not read all due runs, or those of other owners.
func TestP11_ClaimsReadTheIndexOfEachOwner(t *testing.T) {
	for name, url := range map[string]func(testing.TB) string{
		"SQLite":     func(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "store.db") },
		"PostgreSQL": pgtest.URL,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), url(t), Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			const fill = `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 4999)
INSERT INTO run (id, owner, seq, bytes, due) SELECT 'r' || i, 'acme/p' || CASE WHEN i < 4900 THEN 0 ELSE i % 50 END, 1, 1, i FROM n`
			fillTable(t, s, fill)
			query := s.dueOf(8)
			for i := 19; i >= 2; i-- { // $1 is a part of $11
				arg := map[int]string{2: "8", 3: "1000000", 4: "'acme/p1'", 6: "'acme/p2'"}[i]
				if arg == "" && i%2 == 0 {
					arg = "NULL"
				}
				query = strings.ReplaceAll(query, "$"+strconv.Itoa(i), cmp.Or(arg, "8"))
			}
			text := planOf(t, s, query)
			if strings.Count(text, "run_due_owner") < 2 || strings.Contains(text, "SCAN run") || strings.Contains(text, "Seq Scan on run") {
				t.Errorf("the plan is\n%s", text)
			}
		})
	}
}

// TestT_44_TheBacklogReadsTheIndexOfWhatWaits: webhooks that wait for nothing cost nothing.
func TestT_44_TheBacklogReadsTheIndexOfWhatWaits(t *testing.T) {
	for name, url := range map[string]func(testing.TB) string{
		"SQLite":     func(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "store.db") },
		"PostgreSQL": pgtest.URL,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), url(t), Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			fillTable(t, s, `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 4999)
INSERT INTO push_config (id, scope, config, owner, body, seen, due, tries) SELECT 'r' || i, '', 'c', 'acme/p', '', 1, CASE WHEN i < 50 THEN i END, i % 3 FROM n`)
			text := planOf(t, s, strings.NewReplacer("$1", "25", "$2", "100000").Replace(pushBacklog))
			if !strings.Contains(text, "push_due") {
				t.Errorf("the plan is\n%s", text)
			}
			fillTable(t, s, `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 4999)
INSERT INTO run (id, owner, seq, bytes, due) SELECT 'r' || i, 'acme/p', 1, 1, CASE WHEN i < 50 THEN i END FROM n`)
			text = planOf(t, s, strings.NewReplacer("$1", "25", "$2", "100000").Replace(dueBacklog))
			if !strings.Contains(text, "run_due") || strings.Contains(text, "Seq Scan on run") {
				t.Errorf("the plan is\n%s", text)
			}
		})
	}
}

// TestHaltOfATeamReadsNoEndedTasks: a halt holds the writer of a SQLite store, which may have very many.
func TestHaltOfATeamReadsNoEndedTasks(t *testing.T) {
	s, err := Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "store.db"), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	text := planOf(t, s, `SELECT id FROM run WHERE ended IS NULL AND `+strings.ReplaceAll(ofAgent, "$1", "'desk'"))
	if !strings.Contains(text, "run_open") || strings.Contains(text, "SCAN task") {
		t.Errorf("the plan is\n%s", text)
	}
}

// fillTable runs a statement that inserts many rows.
func fillTable(t *testing.T, s *Store, text string) {
	t.Helper()
	err := s.db.do(t.Context(), func(ctx context.Context, q querier) error {
		_, err := q.exec(ctx, text)
		if err == nil {
			_, err = q.exec(ctx, `ANALYZE`)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// planOf returns the plan of a query without arguments.
func planOf(t *testing.T, s *Store, query string) string {
	t.Helper()
	explain := "EXPLAIN "
	if s.db.single() {
		explain = "EXPLAIN QUERY PLAN "
	}
	var plan []string
	err := each(t.Context(), s.db.reader(), func() { plan = nil }, func(r *sql.Rows) error {
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
