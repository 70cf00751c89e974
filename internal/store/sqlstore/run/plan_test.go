package run

import (
	"cmp"
	"strconv"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/testkit/dbtest"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
)

// TestP11_ClaimsReadTheIndexOfEachOwner: a claim does not read all due runs, or those of other owners.
func TestP11_ClaimsReadTheIndexOfEachOwner(t *testing.T) {
	for name, url := range map[string]func(testing.TB) string{
		"SQLite":     dbtest.File,
		"PostgreSQL": pgtest.URL,
	} {
		t.Run(name, func(t *testing.T) {
			d := dbtest.Open(t, url(t))
			const fill = `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 4999)
INSERT INTO run (id, owner, seq, bytes, due) SELECT 'r' || i, 'acme/p' || CASE WHEN i < 4900 THEN 0 ELSE i % 50 END, 1, 1, i FROM n`
			dbtest.Exec(t, d, fill, `ANALYZE`)
			query := dueOf(8, 2, `id, due`, ``, d.Skip)
			for i := 19; i >= 2; i-- { // $1 is a part of $11
				arg := map[int]string{2: "8", 3: "1000000", 4: "'acme/p1'", 6: "'acme/p2'"}[i]
				if arg == "" && i%2 == 0 {
					arg = "NULL"
				}
				query = strings.ReplaceAll(query, "$"+strconv.Itoa(i), cmp.Or(arg, "8"))
			}
			text := dbtest.Plan(t, d, query)
			if strings.Count(text, "run_due_owner") < 2 || strings.Contains(text, "SCAN run") || strings.Contains(text, "Seq Scan on run") {
				t.Errorf("the plan is\n%s", text)
			}
		})
	}
}

// TestT_44_TheBacklogReadsTheIndexOfWhatWaits: webhooks that wait for nothing cost nothing.
func TestT_44_TheBacklogReadsTheIndexOfWhatWaits(t *testing.T) {
	for name, url := range map[string]func(testing.TB) string{
		"SQLite":     dbtest.File,
		"PostgreSQL": pgtest.URL,
	} {
		t.Run(name, func(t *testing.T) {
			d := dbtest.Open(t, url(t))
			dbtest.Exec(t, d, `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 4999)
INSERT INTO push_config (id, scope, config, owner, body, seen, due, tries) SELECT 'r' || i, '', 'c', 'acme/p', '', 1, CASE WHEN i < 50 THEN i END, i % 3 FROM n`, `ANALYZE`)
			text := dbtest.Plan(t, d, strings.NewReplacer("$1", "25", "$2", "100000").Replace(pushBacklog))
			if !strings.Contains(text, "push_due") {
				t.Errorf("the plan is\n%s", text)
			}
			dbtest.Exec(t, d, `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 4999)
INSERT INTO run (id, owner, seq, bytes, due) SELECT 'r' || i, 'acme/p', 1, 1, CASE WHEN i < 50 THEN i END FROM n`, `ANALYZE`)
			text = dbtest.Plan(t, d, strings.NewReplacer("$1", "25", "$2", "100000").Replace(dueBacklog))
			if !strings.Contains(text, "run_due") || strings.Contains(text, "Seq Scan on run") {
				t.Errorf("the plan is\n%s", text)
			}
		})
	}
}
