package task

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
)

// List returns a page of the owner's root tasks. A task whose status changes between two pages
// moves to the front of the list.
func (s *Tasks) List(ctx context.Context, owner string, f runs.Filter) (runs.Page, error) {
	now := s.DB.Now()
	c, err := s.DB.Tokens.Open(store.BoundTo(owner, f), f.PageToken, now)
	if err != nil {
		return runs.Page{}, err
	}
	size := f.PageSize
	if size <= 0 {
		size = store.DefaultPageSize
	}
	w := wanted(owner, f)
	if c.ID == "" {
		if c.Total, err = s.count(ctx, w); err != nil {
			return runs.Page{}, err
		}
	} else {
		w.And("(status_at, task.id) < (?, ?)", c.At, c.ID)
	}
	rows, err := s.rows(ctx, w, size+1)
	if err != nil {
		return runs.Page{}, err
	}
	page := runs.Page{Total: c.Total}
	n, err := s.fill(ctx, &page, owner, f, rows[:min(len(rows), size)])
	if err == nil && n < len(rows) {
		c.At, c.ID = rows[n-1].statusAt, rows[n-1].id
		page.NextToken = s.DB.Tokens.Seal(store.BoundTo(owner, f), c, now)
	}
	return page, err
}

// fill adds the tasks of rows to a page, and returns how many rows it has processed. It omits tasks
// that no longer match the filter and tasks whose records are damaged.
func (s *Tasks) fill(ctx context.Context, page *runs.Page, owner string, f runs.Filter, rows []taskRow) (int, error) {
	for i := range rows {
		var t *a2av1.Task
		var err error
		if rows[i].snapSeq != rows[i].seq && s.Claims.Claimed(rows[i].id) {
			t, _, err = s.Task(ctx, runs.Key{Owner: owner, ID: rows[i].id})
		} else {
			t, _, err = s.taskOf(ctx, &rows[i])
		}
		switch {
		case errors.Is(err, runs.ErrNotFound):
		case errors.Is(err, runs.ErrDataLoss): // the rest of the list is better than none
			s.DB.Log.Error("a task is left out of a list", zap.String("task", rows[i].id), zap.Error(err))
		case err != nil:
			return 0, err
		case f.State != a2av1.TaskState_TASK_STATE_UNSPECIFIED && t.GetStatus().GetState() != f.State:
		case !page.Add(f, t):
			return i, nil
		}
	}
	return len(rows), nil
}

// wanted returns the condition of a filter.
func wanted(owner string, f runs.Filter) *db.Where {
	w := &db.Where{}
	w.And("task.owner = ?", owner)
	w.And("visible = 1")
	agent, state := "agent = ?", "state = ?"
	if f.ContextID != "" { // a conversation has few tasks, so that the other indexes must not be chosen, which SQLite would do
		w.And("context_id = ?", f.ContextID)
		agent, state = "agent || '' = ?", "state + 0 = ?"
	}
	if f.Agent != "" {
		w.And(agent, f.Agent)
	}
	if f.State != a2av1.TaskState_TASK_STATE_UNSPECIFIED {
		w.And(state, int64(f.State))
	}
	if !f.StatusAfter.IsZero() {
		w.And("status_at >= ?", store.Oldest(f))
	}
	return w
}

// heldSnaps is how many bytes of the snapshots that are read with the rows of a list are kept. Others are read one by one
// when they are needed.
const heldSnaps = 1 << 20

// rows returns the newest task rows that match a condition.
func (s *Tasks) rows(ctx context.Context, w *db.Where, limit int) ([]taskRow, error) {
	args := append(slices.Clip(w.Args), int64(limit)) // an argument: one statement for all page sizes
	text := selectTask + ` WHERE ` + w.Text + ` ORDER BY status_at DESC, task.id DESC LIMIT $` + strconv.Itoa(len(args))
	var list []taskRow
	held := 0
	err := db.Each(ctx, s.DB.Reader(), func() { list, held = nil, 0 }, func(r *sql.Rows) error {
		var t taskRow
		if err := r.Scan(t.dest()...); err != nil {
			return err
		}
		if held += len(t.snap); held > heldSnaps {
			t.snap = nil
		}
		list = append(list, t)
		return nil
	}, text, args...)
	return list, err
}

// Counts above manyTasks are cached for countLife, because counting reads all the rows.
const (
	manyTasks = 10_000
	countLife = 10 * time.Second
	maxCounts = 1000
)

// totals holds the cached counts. It is safe for concurrent use.
type totals struct {
	mu    sync.Mutex
	known map[string]total // by condition and arguments; guarded by mu
}

// total is a cached count.
type total struct {
	n     int
	until time.Time
}

// count returns the number of tasks that match a condition. Large numbers may be up to countLife
// old.
func (s *Tasks) count(ctx context.Context, w *db.Where) (int, error) {
	key := key(w)
	if n, ok := s.totals.get(key); ok {
		return n, nil
	}
	n, err := db.Value[int](ctx, s.DB.Reader(), `SELECT count(*) FROM task WHERE `+w.Text, w.Args...)
	if err == nil && n > manyTasks {
		s.totals.put(key, n)
	}
	return n, err
}

// key returns a string that identifies the condition and its arguments.
func key(w *db.Where) string {
	var b strings.Builder
	b.WriteString(w.Text)
	for _, a := range w.Args {
		b.WriteByte(0)
		switch a := a.(type) {
		case string:
			b.WriteString(strconv.Quote(a))
		case int64:
			b.WriteString(strconv.FormatInt(a, 10))
		}
	}
	return b.String()
}

// get returns a cached count.
func (t *totals) get(key string) (int, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := t.known[key]
	return n.n, ok && time.Now().Before(n.until)
}

// put caches a count.
func (t *totals) put(key string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil || len(t.known) >= maxCounts {
		t.known = map[string]total{}
	}
	t.known[key] = total{n: n, until: time.Now().Add(countLife)}
}
