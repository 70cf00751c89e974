package task

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/push"
	"github.com/agentteams/team-server/internal/store/sqlstore/run"
	"github.com/agentteams/team-server/internal/testkit/dbtest"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/internal/testkit/sample"
)

// TestFind_ReadsAnIndexForEachFilter: a page of any filter reads the index of the filter, and not all tasks. PostgreSQL
// sorts what the index finds if that is less than a page.
func TestFind_ReadsAnIndexForEachFilter(t *testing.T) {
	for name, url := range map[string]func(testing.TB) string{"SQLite": dbtest.File, "PostgreSQL": pgtest.URL} {
		t.Run(name, func(t *testing.T) {
			d := dbtest.Open(t, url(t))
			dbtest.Exec(t, d, manyTasksOf("acme", 5000), manySpent(5000), `ANALYZE`)
			for filter, c := range map[string]struct {
				q     runs.TaskQuery
				index string
			}{
				"none":            {runs.TaskQuery{}, "task_created"},
				"agent":           {runs.TaskQuery{Agent: "a7"}, "task_created_agent"},
				"state":           {runs.TaskQuery{State: a2av1.TaskState_TASK_STATE_FAILED}, "task_created_state"},
				"owner":           {runs.TaskQuery{Owner: "acme/p3"}, "task_owner_created"},
				"agent of owner":  {runs.TaskQuery{Owner: "acme/p3", Agent: "a7"}, "task_owner_created_agent"},
				"cost":            {runs.TaskQuery{MinCostMicros: 4990}, "task_spent_cost"},
				"a low cost":      {runs.TaskQuery{MinCostMicros: 1}, "task_spent_cost"},
				"a cost of owner": {runs.TaskQuery{Owner: "acme/p3", MinCostMicros: 1}, "task_spent_owner"},
			} {
				c.q.Account, c.q.PageSize = "acme", 50
				plan := dbtest.Plan(t, d, filled(selectFound(foundColumns, c.q, store.Cursor{}, nil, 51)))
				if !strings.Contains(plan, c.index) || strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "TEMP B-TREE") || strings.Contains(plan+"\n", "SCAN task\n") {
					t.Errorf("%s: the plan is\n%s", filter, plan)
				}
			}
		})
	}
}

// TestList_ReadsTheConversation: the tasks of a conversation are listed and counted by its index, however many tasks an agent has.
func TestList_ReadsTheConversation(t *testing.T) {
	for name, url := range map[string]func(testing.TB) string{"SQLite": dbtest.File, "PostgreSQL": pgtest.URL} {
		t.Run(name, func(t *testing.T) {
			d := dbtest.Open(t, url(t))
			dbtest.Exec(t, d, manyTasksOf("acme", 5000))
			if name == "PostgreSQL" { // SQLite has no statistics unless a program asks for them
				dbtest.Exec(t, d, `ANALYZE`)
			}
			w := wanted("acme/p3", runs.Filter{Agent: "a3", ContextID: "c7", State: a2av1.TaskState_TASK_STATE_COMPLETED})
			for _, text := range []string{`SELECT count(*) FROM task WHERE ` + w.Text, selectTask + ` WHERE ` + w.Text + ` ORDER BY status_at DESC, task.id DESC LIMIT 6`} {
				if plan := dbtest.Plan(t, d, filled(text, w.Args)); !strings.Contains(plan, "task_context") {
					t.Errorf("the plan of %s is\n%s", text, plan)
				}
			}
		})
	}
}

// TestFind_WordsOfManyTasks: a page ends after many texts, with a token for the rest.
func TestFind_WordsOfManyTasks(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.File(t))
	s := &Tasks{DB: d, Claims: run.New(d, push.New(d))}
	dbtest.Exec(t, d, manyTasksOf("acme", maxTexts+100), `UPDATE task SET text = 'A Pearl' WHERE created = 5`)
	q := runs.TaskQuery{Account: "acme", Text: "pearl", PageSize: 50}
	page, err := s.Find(t.Context(), q)
	if err != nil || len(page.Tasks) != 0 || page.NextToken == "" {
		t.Fatalf("%d tasks, token %q, %v; want a token alone", len(page.Tasks), page.NextToken, err)
	}
	q.PageToken = page.NextToken
	if page, err = s.Find(t.Context(), q); err != nil || len(page.Tasks) != 1 || page.Tasks[0].GetTaskId() != "t5" || page.NextToken != "" {
		t.Errorf("%v, %v; want t5", page, err)
	}
}

// manyTasksOf returns the statement that makes tasks of an account, of ten owners, a hundred agents and conversations of ten
// tasks; one of a hundred has failed.
func manyTasksOf(account string, n int) string {
	return fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
INSERT INTO task (id, account, owner, created, text, agent, agent_account, context_id, state, status_at, visible, brief)
SELECT 't' || i, '%s', '%s/p' || i %% 10, i, 'text', 'a' || i %% 100, '', 'c' || i / 10, CASE WHEN i %% 100 = 0 THEN 4 ELSE 3 END, i, 1, 0 FROM n`, n-1, account, account)
}

// manySpent returns the statement that makes what these tasks have spent.
func manySpent(n int) string {
	return fmt.Sprintf(`INSERT INTO task_spent (id, account, owner, seq, input_tokens, output_tokens, cost_micros) SELECT id, account, owner, 1, 1, 1, created * 7919 %% %d FROM task`, n)
}

// filled returns a statement with its arguments in it.
func filled(text string, args []any) string {
	for i := len(args); i > 0; i-- {
		value := fmt.Sprint(args[i-1])
		if s, ok := args[i-1].(string); ok {
			value = "'" + s + "'"
		}
		text = strings.ReplaceAll(text, "$"+strconv.Itoa(i), value)
	}
	return text
}

// TestFind_FilteredPagesAreAsFast: with 10,000 tasks, 99 of 100 pages of each filter take at most three times as long as
// those without one.
func TestFind_FilteredPagesAreAsFast(t *testing.T) {
	if !sample.All() {
		t.Skip("it measures times: TEAM_TESTS=all")
	}
	const tasks, pages, most = 10_000, 500, 3
	for name, url := range map[string]func(testing.TB) string{"SQLite": dbtest.File, "PostgreSQL": pgtest.URL} {
		t.Run(name, func(t *testing.T) {
			d := dbtest.Open(t, url(t))
			s := &Tasks{DB: d, Claims: run.New(d, push.New(d))}
			dbtest.Exec(t, d, manyTasksOf("acme", tasks), manySpent(tasks), `ANALYZE`)
			filters := map[string]runs.TaskQuery{
				"none": {}, "agent": {Agent: "a7"}, "agent without tasks": {Agent: "nobody"}, "state": {State: a2av1.TaskState_TASK_STATE_FAILED}, "owner": {Owner: "acme/p3"},
				"agent of owner": {Owner: "acme/p3", Agent: "a13"}, "conversation of owner": {Owner: "acme/p3", ContextID: "c700"},
				"agent in a conversation of owner": {Owner: "acme/p3", ContextID: "c700", Agent: "a3"}, "time": {Since: time.UnixMilli(3000), Until: time.UnixMilli(3100)}, "since": {Since: time.UnixMilli(5000)},
				"word in all": {Text: "text"}, "word in none": {Text: "never"},
				"high cost": {MinCostMicros: tasks - 10}, "low cost": {MinCostMicros: 1}, "cost of owner": {MinCostMicros: 1, Owner: "acme/p3"},
			}
			for try := 1; ; try++ {
				times := pageTimes(t, s, filters, pages)
				slow := 0
				for filter, took := range times {
					if took > most*times["none"] {
						slow++
					}
					t.Logf("%-20s p99 %8v, %.1f times", filter, took, float64(took)/float64(times["none"]))
				}
				if slow == 0 {
					return
				}
				if try == 3 { // other programs may have disturbed the first ones
					t.Fatalf("%d filters are too slow", slow)
				}
			}
		})
	}
}

// pageTimes returns how long 99 of 100 pages of each query take, read in turn.
func pageTimes(t *testing.T, s *Tasks, queries map[string]runs.TaskQuery, pages int) map[string]time.Duration {
	t.Helper()
	all := map[string][]time.Duration{}
	for range pages {
		for name, q := range queries {
			q.Account, q.PageSize = "acme", 50
			begin := time.Now()
			if _, err := s.Find(t.Context(), q); err != nil {
				t.Fatal(err)
			}
			all[name] = append(all[name], time.Since(begin))
		}
	}
	p99 := map[string]time.Duration{}
	for name, times := range all {
		slices.Sort(times)
		p99[name] = times[len(times)*99/100]
	}
	return p99
}
