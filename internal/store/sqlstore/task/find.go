package task

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/pkg/a2a"
)

// Find implements a2a.Overview.
func (s *Tasks) Find(ctx context.Context, q a2a.TaskQuery) (page a2a.FoundTasks, err error) {
	now := s.DB.Now()
	c, err := s.DB.Tokens.Open(store.BoundToQuery(q), q.PageToken, now)
	if err != nil {
		return page, err
	}
	text, args := selectFound(q, c)
	rows, err := db.Rows(ctx, s.DB.Reader(), (*foundRow).dest, text, args...)
	if err != nil {
		return page, err
	}
	if len(rows) > q.PageSize {
		rows = rows[:q.PageSize]
		last := rows[len(rows)-1]
		at := last.created
		if q.MinCostMicros > 0 {
			at = last.cost
		}
		page.NextToken = s.DB.Tokens.Seal(store.BoundToQuery(q), store.Cursor{ID: last.id, At: at}, now)
	}
	for i := range rows {
		page.Tasks = append(page.Tasks, rows[i].found())
	}
	return page, nil
}

// order is the tables of a query in the order in which they are read, and the columns by which its rows are ordered:
// each order is that of an index, so that a page reads no more than it has.
type order struct{ from, by, id string }

// The orders of queries: by what tasks have spent; by their creation, of all and of those with a word.
var (
	byCost    = order{`task_spent CROSS JOIN task`, `task_spent.cost_micros`, `task_spent.id`}
	byCreated = order{`task`, `task.created`, `task.id`}
	byWord    = order{`task_word CROSS JOIN task`, `task_word.created`, `task_word.id`}
)

// selectFound returns the statement for one task more than the page of a query after a cursor.
func selectFound(q a2a.TaskQuery, c store.Cursor) (text string, args []any) {
	w, by, words := &db.Where{}, byCreated, store.Words(q.Text)
	switch {
	case q.MinCostMicros > 0:
		by = byCost
		w.And("task.id = task_spent.id")
		within(w, "task_spent", q)
		w.And("task_spent.cost_micros >= ?", q.MinCostMicros)
	case len(words) > 0:
		by = byWord
		words = slices.SortedFunc(slices.Values(words), func(a, b string) int { return cmp.Compare(len(b), len(a)) })
		w.And("task.id = task_word.id")
		w.And("task_word.word = ?", store.WordKey(q.Account, words[0])) // the longest one, which is often the rarest
		words = words[1:]
	}
	within(w, "task", q)
	w.And("task.visible = 1")
	for _, f := range []struct{ column, value string }{{"task.id", q.ID}, {"task.agent", q.Agent}, {"task.context_id", q.ContextID}} {
		if f.value != "" {
			w.And(f.column+" = ?", f.value)
		}
	}
	if q.State != a2av1.TaskState_TASK_STATE_UNSPECIFIED {
		w.And("task.state = ?", int64(q.State))
	}
	created := by.by
	if created == byCost.by {
		created = byCreated.by
	}
	if !q.Since.IsZero() {
		w.And(created+" >= ?", q.Since.UnixMilli())
	}
	if !q.Until.IsZero() {
		w.And(created+" < ?", q.Until.UnixMilli())
	}
	for _, word := range words {
		w.And("EXISTS (SELECT 1 FROM task_word AS other WHERE other.word = ? AND other.created = task.created AND other.id = task.id)", store.WordKey(q.Account, word))
	}
	if c.ID != "" {
		w.And("("+by.by+", "+by.id+") < (?, ?)", c.At, c.ID)
	}
	args = append(w.Args, int64(q.PageSize)+1)
	return foundColumns + by.from + ` WHERE ` + w.Text + ` ORDER BY ` + by.by + ` DESC, ` + by.id + ` DESC LIMIT $` + strconv.Itoa(len(args)), args
}

// within adds the condition that rows of a table belong to the account of a query, or to its owner.
func within(w *db.Where, table string, q a2a.TaskQuery) {
	if q.Owner != "" {
		w.And(table+".owner = ?", q.Owner)
		return
	}
	w.And(table+".account = ?", q.Account)
}

// foundColumns selects the columns of a foundRow. What a task has spent is looked up for the rows of the page alone.
const foundColumns = `SELECT task.id, task.owner, agent, context_id, state, status_at, task.created, text,
COALESCE((SELECT input_tokens FROM task_spent AS spent WHERE spent.id = task.id), 0),
COALESCE((SELECT output_tokens FROM task_spent AS spent WHERE spent.id = task.id), 0),
COALESCE((SELECT cost_micros FROM task_spent AS spent WHERE spent.id = task.id), 0) FROM `

// foundRow is a row of a query.
type foundRow struct {
	id, owner, agent, context, text               string
	state, statusAt, created, input, output, cost int64
}

// dest returns the destinations for a scan of foundColumns.
func (r *foundRow) dest() []any {
	return []any{&r.id, &r.owner, &r.agent, &r.context, &r.state, &r.statusAt, &r.created, &r.text, &r.input, &r.output, &r.cost}
}

// found returns the task of a row.
func (r *foundRow) found() *teamv1.FoundTask {
	return &teamv1.FoundTask{
		TaskId: r.id, AgentId: r.agent, Principal: a2a.PrincipalOf(r.owner), ContextId: r.context, State: a2av1.TaskState(r.state), Text: r.text, //nolint:gosec // it was stored as such
		Created: timestamppb.New(time.UnixMilli(r.created)), Changed: timestamppb.New(time.Unix(0, r.statusAt)),
		Spent: &teamv1.Spent{InputTokens: r.input, OutputTokens: r.output, CostMicros: r.cost},
	}
}
