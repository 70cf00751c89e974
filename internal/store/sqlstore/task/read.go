// Package task has tasks as callers see them: one by one, in lists, as questions, and the conversations that they
// belong to.
package task

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/record"
	"github.com/agentteams/team-server/internal/store/sqlstore/run"
	"github.com/agentteams/team-server/pkg/agent"
)

// Tasks are the root tasks of a database and what is below them. It implements the part of runs.Store that reads,
// runs.Overview and runs.Approvals.
type Tasks struct {
	DB     *db.DB
	Claims *run.Runs
	totals totals
}

// selectStanding selects the standing of an owner's task.
const selectStanding = `SELECT agent, agent_account, context_id, state FROM task WHERE id = $1 AND owner = $2 AND visible = 1`

// Watch implements runs.Store. The id of a child stands for its root.
func (s *Tasks) Watch(id string) (wake <-chan struct{}, stop func()) {
	root, _ := agent.SplitTask(id)
	return s.Claims.WatchRoot(root)
}

// Events returns at most limit committed events after a sequence number, of the key's scope and
// below. It also returns those of a task that is not visible yet, because the sender of its message
// waits for them.
func (s *Tasks) Events(ctx context.Context, k runs.Key, after int64, limit int) ([]runs.Record, error) {
	if limit <= 0 {
		return nil, nil
	}
	root, scope, err := s.Claims.Owned(ctx, k)
	if err != nil {
		return nil, err
	}
	return s.Claims.Page(ctx, root, scope, after, limit)
}

// Task returns the A2A task and the sequence number of the last event that it includes.
func (s *Tasks) Task(ctx context.Context, k runs.Key) (*a2av1.Task, int64, error) {
	root, scope, err := s.Claims.Owned(ctx, k)
	if err != nil {
		return nil, 0, err
	}
	if scope != "" {
		return s.child(ctx, root, scope)
	}
	if t, seq, ok, err := s.Claims.LiveTask(ctx, root); ok {
		return t, seq, err
	}
	var r taskRow
	err = s.DB.Reader().Scan(ctx, r.dest(), selectTask+` WHERE task.id = $1`, root)
	if err != nil {
		return nil, 0, db.NotFound(err)
	}
	return s.taskOf(ctx, &r)
}

// Standing implements runs.Store.
func (s *Tasks) Standing(ctx context.Context, k runs.Key) (st runs.Standing, err error) {
	if st, ok := s.Claims.LiveStanding(k); ok {
		return st, nil
	}
	var state int32
	err = s.DB.Reader().Scan(ctx, []any{&st.Agent, &st.Account, &st.ContextID, &state}, selectStanding, k.ID, k.Owner)
	st.State = a2av1.TaskState(state)
	return st, db.NotFound(err)
}

// taskRow is a row of the table task, with columns of its run.
type taskRow struct {
	id                                   string
	visible, statusAt, snapSeq, sum, seq int64
	snapSize                             sql.NullInt64 // bytes
	snap                                 []byte        // nil if it was not read
	parked                               sql.NullString
}

// smallSnap is the size in bytes up to which snapshots are read with their rows.
const smallSnap = 64 << 10

// Statements that read tasks. selectTask selects the columns of a taskRow.
var (
	selectTask = fmt.Sprintf(`SELECT task.id, visible, status_at, snap_seq, snap_sum, length(snap), CASE WHEN length(snap) <= %d THEN snap END, seq, parked
FROM task JOIN run ON run.id = task.id`, smallSnap)
	selectSnap = `SELECT snap FROM task WHERE id = $1 AND snap_seq = $2`
)

// dest returns the destinations for a scan of selectTask.
func (r *taskRow) dest() []any {
	return []any{&r.id, &r.visible, &r.statusAt, &r.snapSeq, &r.sum, &r.snapSize, &r.snap, &r.seq, &r.parked}
}

// taskOf returns the task of a row and the sequence number of the last event that it includes. It
// uses the snapshot if that is current, and otherwise computes the task from the events, of which
// there may be more by then.
func (s *Tasks) taskOf(ctx context.Context, r *taskRow) (*a2av1.Task, int64, error) {
	if r.visible == 0 {
		return nil, 0, runs.ErrNotFound
	}
	if r.snapSeq == r.seq {
		t, err := s.ended(ctx, r)
		if !errors.Is(err, sql.ErrNoRows) {
			return t, r.seq, err
		} // it has gone on, or was deleted
	}
	f, seq, err := s.Claims.Fold(ctx, r.id, "")
	switch {
	case err != nil:
		return nil, 0, err
	case seq == 0: // deleted after its row was read, or lost
		return nil, 0, db.DataLoss("the journal behind event", r.id, 0)
	}
	return project.Parked(f.Task(), r.parked.String), seq, nil
}

// ended returns the task of a row whose snapshot is current. The error is sql.ErrNoRows if it is not any more.
func (s *Tasks) ended(ctx context.Context, r *taskRow) (*a2av1.Task, error) {
	if err := s.readSnap(ctx, r); err != nil {
		return nil, err
	}
	t := &a2av1.Task{}
	if err := record.Decoded(ctx, s.DB.Reader(), r.id, r.snapSeq, r.snap, func(body []byte) error {
		if db.SumOf(r.id, r.snapSeq, "", body) != r.sum || proto.Unmarshal(body, t) != nil {
			return db.DataLoss("task", r.id, r.snapSeq)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	return project.Parked(t, r.parked.String), nil
}

// readSnap reads the snapshot of a row if it was not read with the row. The error is sql.ErrNoRows if it is not current any
// more, or that of inflight.Read.
func (s *Tasks) readSnap(ctx context.Context, r *taskRow) error {
	if r.snap != nil {
		return nil
	}
	end, err := inflight.Read(ctx, r.snapSize.Int64)
	if err != nil {
		return err
	}
	defer end()
	return s.DB.Reader().Scan(ctx, []any{&r.snap}, selectSnap, r.id, r.snapSeq)
}

// child computes the task of a scope below a root.
func (s *Tasks) child(ctx context.Context, root, scope string) (*a2av1.Task, int64, error) {
	f, seq, err := s.Claims.Fold(ctx, root, scope)
	if err != nil {
		return nil, 0, err
	}
	if !f.Visible() {
		return nil, 0, runs.ErrNotFound
	}
	return f.Task(), seq, nil
}
