package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/a2a"
)

// WatchAll returns a channel that receives when a root of the owner may be new or have
// new events, when a board of the owner's account has changed, or when the catalog has
// changed.
func (s *Store) WatchAll(owner string) (wake <-chan struct{}, stop func()) {
	return s.hub.all.Watch(owner)
}

// Runs returns the progress of the owner's visible roots. It finds open ones by state and ended
// ones by status time, because there is an index for both.
func (s *Store) Runs(ctx context.Context, owner string, f a2a.RunFilter) ([]a2a.RunMark, error) {
	open := wanted(owner, a2a.Filter{Agent: f.Agent})
	open.and(openStates)
	marks, err := s.runMarks(ctx, open, f.Limit)
	if err != nil || !f.Ended {
		return marks, err
	}
	ended := wanted(owner, a2a.Filter{Agent: f.Agent, StatusAfter: f.Since})
	ended.and("NOT " + openStates)
	rest, err := s.runMarks(ctx, ended, f.Limit)
	if err != nil {
		return nil, err
	}
	marks = newestFirst(marks, rest)
	if f.Limit > 0 {
		marks = marks[:min(len(marks), f.Limit)]
	}
	return marks, nil
}

// openStates is the condition for tasks that have not ended.
var openStates = fmt.Sprintf("state IN (%d, %d, %d, %d)", a2av1.TaskState_TASK_STATE_SUBMITTED, a2av1.TaskState_TASK_STATE_WORKING,
	a2av1.TaskState_TASK_STATE_INPUT_REQUIRED, a2av1.TaskState_TASK_STATE_AUTH_REQUIRED)

// newestFirst merges open roots with ended ones that were read afterwards. A root in both lists has
// ended in the meantime.
func newestFirst(open, ended []a2a.RunMark) []a2a.RunMark {
	known := make(map[string]bool, len(ended))
	for _, m := range ended {
		known[m.Root] = true
	}
	marks := append(slices.DeleteFunc(open, func(m a2a.RunMark) bool { return known[m.Root] }), ended...)
	slices.SortFunc(marks, func(a, b a2a.RunMark) int {
		return cmp.Or(b.StatusAt.Compare(a.StatusAt), cmp.Compare(b.Root, a.Root))
	})
	return marks
}

// Collaborating returns ids of the owner's roots that were begun with a brief.
func (s *Store) Collaborating(ctx context.Context, owner string, f a2a.RootFilter) ([]string, error) {
	w := wanted(owner, a2a.Filter{Agent: f.Agent})
	w.and("brief = 1")
	if f.Before != "" {
		w.and("task.id < ?", f.Before)
	}
	limit := f.Limit
	if limit <= 0 {
		limit = math.MaxInt32
	}
	args := append(slices.Clip(w.args), int64(limit))
	var ids []string
	err := each(ctx, s.db.reader(), func() { ids = nil }, func(r *sql.Rows) error {
		var id string
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	}, `SELECT task.id FROM task WHERE `+w.text+fmt.Sprintf(` ORDER BY task.id DESC LIMIT $%d`, len(args)), args...)
	return ids, err
}

// runMarks returns the marks of the newest roots that match a condition. A limit of 0 or less means
// no limit.
func (s *Store) runMarks(ctx context.Context, w *where, limit int) ([]a2a.RunMark, error) {
	if limit <= 0 {
		limit = math.MaxInt32
	}
	args := append(slices.Clip(w.args), int64(limit))
	text := `SELECT task.id, agent, seq, state, status_at FROM task JOIN run ON run.id = task.id WHERE ` + w.text +
		fmt.Sprintf(` ORDER BY status_at DESC, task.id DESC LIMIT $%d`, len(args))
	var marks []a2a.RunMark
	err := each(ctx, s.db.reader(), func() { marks = nil }, func(r *sql.Rows) error {
		var m a2a.RunMark
		var state int32
		var at int64
		if err := r.Scan(&m.Root, &m.Agent, &m.Seq, &state, &at); err != nil {
			return err
		}
		m.State, m.StatusAt = a2av1.TaskState(state), time.Unix(0, at)
		marks = append(marks, m)
		return nil
	}, text, args...)
	return marks, err
}
