package task

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/record"
)

// WatchAll returns a channel that receives when a root of the owner may be new or have
// new events, when a board of the owner's account has changed, or when the catalog has
// changed.
func (s *Tasks) WatchAll(owner string) (wake <-chan struct{}, stop func()) {
	return s.DB.WatchAll(owner)
}

// Runs returns the progress of the owner's visible roots. It finds open ones by state and ended
// ones by status time, because there is an index for both.
func (s *Tasks) Runs(ctx context.Context, owner string, f runs.RunFilter) ([]runs.RunMark, error) {
	open := wanted(owner, runs.Filter{Agent: f.Agent})
	open.And(record.OpenStates)
	marks, err := s.runMarks(ctx, open, f.Limit)
	if err != nil || !f.Ended {
		return marks, err
	}
	ended := wanted(owner, runs.Filter{Agent: f.Agent, StatusAfter: f.Since})
	ended.And("NOT " + record.OpenStates)
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

// newestFirst merges open roots with ended ones that were read afterwards. A root in both lists has
// ended in the meantime.
func newestFirst(open, ended []runs.RunMark) []runs.RunMark {
	known := make(map[string]bool, len(ended))
	for _, m := range ended {
		known[m.Root] = true
	}
	marks := append(slices.DeleteFunc(open, func(m runs.RunMark) bool { return known[m.Root] }), ended...)
	slices.SortFunc(marks, func(a, b runs.RunMark) int {
		return cmp.Or(b.StatusAt.Compare(a.StatusAt), cmp.Compare(b.Root, a.Root))
	})
	return marks
}

// Collaborating returns ids of the owner's roots that were begun with a brief.
func (s *Tasks) Collaborating(ctx context.Context, owner string, f runs.RootFilter) ([]string, error) {
	w := wanted(owner, runs.Filter{Agent: f.Agent})
	w.And("brief = 1")
	if f.Before != "" {
		w.And("task.id < ?", f.Before)
	}
	limit := f.Limit
	if limit <= 0 {
		limit = math.MaxInt32
	}
	args := append(slices.Clip(w.Args), int64(limit))
	return db.Values[string](ctx, s.DB.Reader(), `SELECT task.id FROM task WHERE `+w.Text+fmt.Sprintf(` ORDER BY task.id DESC LIMIT $%d`, len(args)), args...)
}

// runMarks returns the marks of the newest roots that match a condition. A limit of 0 or less means
// no limit.
func (s *Tasks) runMarks(ctx context.Context, w *db.Where, limit int) ([]runs.RunMark, error) {
	if limit <= 0 {
		limit = math.MaxInt32
	}
	args := append(slices.Clip(w.Args), int64(limit))
	text := `SELECT task.id, agent, seq, state, status_at FROM task JOIN run ON run.id = task.id WHERE ` + w.Text +
		fmt.Sprintf(` ORDER BY status_at DESC, task.id DESC LIMIT $%d`, len(args))
	return db.List(ctx, s.DB.Reader(), func(r *sql.Rows) (runs.RunMark, error) {
		var m runs.RunMark
		var state int32
		var at int64
		if err := r.Scan(&m.Root, &m.Agent, &m.Seq, &state, &at); err != nil {
			return m, err
		}
		m.State, m.StatusAt = a2av1.TaskState(state), time.Unix(0, at)
		return m, nil
	}, text, args...)
}
