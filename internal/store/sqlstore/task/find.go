package task

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
)

// Find implements runs.Overview.
func (s *Tasks) Find(ctx context.Context, q runs.TaskQuery) (page runs.FoundTasks, err error) {
	now := s.DB.Now()
	c, err := s.DB.Tokens.Open(store.BoundToQuery(q), q.PageToken, now)
	if err != nil {
		return page, err
	}
	token := func(at store.Cursor) string { return s.DB.Tokens.Seal(store.BoundToQuery(q), at, now) }
	var ids []string
	if words := store.Words(q.Text); len(words) > 0 {
		var rest *store.Cursor
		if ids, rest, err = s.withWords(ctx, q, c, words); err != nil {
			return page, err
		}
		if rest != nil {
			page.NextToken = token(*rest)
		}
		if len(ids) == 0 {
			return page, nil
		}
	}
	text, args := selectFound(foundColumns, q, c, ids, q.PageSize+1)
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
		page.NextToken = token(store.Cursor{ID: last.id, At: at})
	}
	for i := range rows {
		page.Tasks = append(page.Tasks, rows[i].found())
	}
	return page, nil
}

// maxTexts is how many texts are searched for a page, so that one costs about as much as another, however many tasks there are.
const maxTexts = 300

// withWords returns the ids of the first tasks of a query after a cursor whose texts have all words, for a page and one more.
// It reads the texts in turn: an index of the words would make the creation of each task a quarter slower. If there are too many
// for one page, rest is how far it has come.
func (s *Tasks) withWords(ctx context.Context, q runs.TaskQuery, c store.Cursor, words []string) (ids []string, rest *store.Cursor, err error) {
	text, args := selectFound(textColumns(q), q, c, nil, maxTexts)
	rows, err := db.Rows(ctx, s.DB.Reader(), (*textRow).dest, text, args...)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range rows {
		if !store.HasWords(r.text, words) {
			continue
		}
		if ids = append(ids, r.id); len(ids) > q.PageSize {
			return ids, nil, nil
		}
	}
	if len(rows) == maxTexts {
		last := rows[maxTexts-1]
		rest = &store.Cursor{ID: last.id, At: last.at}
	}
	return ids, rest, nil
}

// textRow is the text of a task, and its place in the order of its query.
type textRow struct {
	id, text string
	at       int64
}

// dest returns the destinations for a scan of textColumns.
func (r *textRow) dest() []any { return []any{&r.id, &r.at, &r.text} }

// textColumns selects the columns of a textRow.
func textColumns(q runs.TaskQuery) string {
	by := orderOf(q)
	return `SELECT ` + by.id + `, ` + by.by + `, text FROM `
}

// order is the tables of a query in the order in which they are read, and the columns by which its rows are ordered:
// each order is that of an index, so that a page reads no more than it has.
type order struct{ from, by, id string }

// The orders of queries: by what tasks have spent, and by their creation.
var (
	byCost    = order{`task_spent CROSS JOIN task`, `task_spent.cost_micros`, `task_spent.id`}
	byCreated = order{`task`, `task.created`, `task.id`}
)

// orderOf returns the order of the tasks of a query.
func orderOf(q runs.TaskQuery) order {
	if q.MinCostMicros > 0 {
		return byCost
	}
	return byCreated
}

// selectFound returns the statement for at most limit tasks of a query after a cursor. Unless ids is nil, it selects only tasks
// with these ids, at most one more than a page has.
func selectFound(columns string, q runs.TaskQuery, c store.Cursor, ids []string, limit int) (text string, args []any) {
	w, by := &db.Where{}, orderOf(q)
	if by == byCost {
		w.And("task.id = task_spent.id")
		within(w, "task_spent", q)
		w.And("task_spent.cost_micros >= ?", q.MinCostMicros)
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
	if !q.Since.IsZero() {
		w.And("task.created >= ?", q.Since.UnixMilli())
	}
	if !q.Until.IsZero() {
		w.And("task.created < ?", q.Until.UnixMilli())
	}
	if ids != nil {
		all := make([]any, q.PageSize+1) // one statement for all numbers of ids
		for i := range all {
			all[i] = ids[min(i, len(ids)-1)]
		}
		w.And(by.id+" IN ("+db.Marks(len(all))+")", all...)
	}
	if c.ID != "" {
		w.And("("+by.by+", "+by.id+") < (?, ?)", c.At, c.ID)
	}
	args = append(w.Args, int64(limit))
	return columns + by.from + ` WHERE ` + w.Text + ` ORDER BY ` + by.by + ` DESC, ` + by.id + ` DESC LIMIT $` + strconv.Itoa(len(args)), args
}

// within adds the condition that rows of a table belong to the account of a query, or to its owner.
func within(w *db.Where, table string, q runs.TaskQuery) {
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
		TaskId: r.id, AgentId: r.agent, Principal: identity.PrincipalOf(r.owner), ContextId: r.context, State: a2av1.TaskState(r.state), Text: r.text, //nolint:gosec // it was stored as such
		Created: timestamppb.New(time.UnixMilli(r.created)), Changed: timestamppb.New(time.Unix(0, r.statusAt)),
		Spent: &teamv1.Spent{InputTokens: r.input, OutputTokens: r.output, CostMicros: r.cost},
	}
}
