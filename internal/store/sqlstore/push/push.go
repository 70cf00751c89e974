// Package push has the configurations of push notifications, and the notifications that could not be delivered.
package push

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/record"
	"github.com/agentteams/team-server/pkg/agent"
)

// Tables are the tables of this package whose rows are copied with a store.
var Tables = []string{"push_config", "push_dead"}

// DeleteRun are the statements that delete what belongs to a run, $1.
var DeleteRun = []string{`DELETE FROM push_dead WHERE id = $1`, `DELETE FROM push_config WHERE id = $1`}

// ReleaseAll makes all claimed configurations due.
const ReleaseAll = `UPDATE push_config SET due = $1, held = 0 WHERE held = 1`

// Pushes are all configurations and dead letters of a database. It implements runs.Pushes.
type Pushes struct {
	db  *db.DB
	due chan struct{} // see PushWake
}

// New returns the configurations of a database.
func New(d *db.DB) *Pushes { return &Pushes{db: d, due: make(chan struct{}, 1)} }

// Statements of the tables push_config and push_dead.
const (
	countOfOwner = `SELECT count(*) FROM push_config WHERE owner = $1 AND ended = 0`
	lockRunPush  = `SELECT push FROM run WHERE id = $1`
	replace      = `UPDATE push_config SET body = $4, version = $6, epoch = epoch + 1, due = $5, held = 0, tries = 0, since = 0, failing = 0, error = ''
WHERE id = $1 AND scope = $2 AND config = $3`
	countOfTask  = `SELECT count(*) FROM push_config WHERE id = $1 AND scope = $2`
	insert       = `INSERT INTO push_config (id, scope, config, owner, body, due, seen, version, epoch) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	markRun      = `UPDATE run SET push = 1 WHERE id = $1`
	deleteConfig = `DELETE FROM push_config WHERE id = $1 AND scope = $2 AND config = $3`
	deleteDead   = `DELETE FROM push_dead WHERE id = $1 AND scope = $2 AND config = $3`
	countDead    = `SELECT count(*) FROM push_dead WHERE id = $1 AND scope = $2`
	selectDead   = `SELECT config, seq, part, tries, error, at FROM push_dead WHERE id = $1 AND scope = $2
ORDER BY at DESC, seq DESC, part DESC, config LIMIT $3`
)

// WakeIdle makes the idle push configurations due that must report a batch.
const WakeIdle = `UPDATE push_config SET due = $4
WHERE id = $1 AND due IS NULL AND ended = 0 AND EXISTS (SELECT 1 FROM run WHERE run.id = $1 AND epoch = $2 AND seq = $3)`

// Epoch returns the first epoch of a new configuration. It is random, so that it differs from
// the epochs of a deleted configuration with the same id, whose claim may still be in use.
func Epoch() int64 { return rand.Int64N(1 << 62) } //nolint:gosec // no secret

// pushName returns what a sealed configuration is bound to: its task and id.
func pushName(root, scope, id string) []byte { return []byte(root + "\x00" + scope + "\x00" + id) }

// Seal returns an encrypted configuration.
func (s *Pushes) Seal(root, scope string, c *a2av1.TaskPushNotificationConfig) ([]byte, error) {
	body, err := proto.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode a push configuration of %s: %w", root, err)
	}
	return s.db.Seal(pushName(root, scope, c.GetId()), body), nil
}

// unsealPush decrypts a configuration. The error is runs.ErrDataLoss.
func (s *Pushes) unsealPush(root, scope, id string, body []byte) (*a2av1.TaskPushNotificationConfig, error) {
	b, err := s.db.Unseal(pushName(root, scope, id), body)
	c := &a2av1.TaskPushNotificationConfig{}
	var missing db.NoKeyError
	switch {
	case errors.As(err, &missing):
		return nil, fmt.Errorf("push configuration %s of %s: %w: %w", id, root, runs.ErrDataLoss, missing)
	case err != nil || proto.Unmarshal(b, c) != nil:
		return nil, fmt.Errorf("push configuration %s of %s: %w", id, root, runs.ErrDataLoss)
	}
	return c, nil
}

// PushWake returns a channel that receives when a configuration may have become due.
func (s *Pushes) PushWake() <-chan struct{} { return s.due }

// Wake signals that a configuration may have become due.
func (s *Pushes) Wake() { store.Poke(s.due) }

// Room returns a refusal if an owner has the maximum number of configurations.
func Room(ctx context.Context, q db.Querier, owner string) error {
	n, err := db.Value[int](ctx, q, countOfOwner, owner)
	if err == nil && n >= runs.MaxPushOwner {
		return db.Refuse(runs.ErrPushOwner)
	}
	return err
}

// PutPush stores a configuration, and replaces the one with the same id.
func (s *Pushes) PutPush(ctx context.Context, p runs.Push) error {
	if err := s.db.Ready(); err != nil { // fail at once, not after all attempts
		return err
	}
	root, scope, err := record.Owned(ctx, s.db.Reader(), p.Task)
	if err != nil {
		return err
	}
	body, err := s.Seal(root, scope, p.Config)
	if err != nil {
		return err
	}
	defer s.Wake()
	return s.db.Do(ctx, func(ctx context.Context, q db.Querier) error {
		return s.Insert(ctx, q, root, scope, p, body)
	})
}

// Insert stores a configuration under the lock of its run.
func (s *Pushes) Insert(ctx context.Context, q db.Querier, root, scope string, p runs.Push, body []byte) error {
	pushed, err := db.Value[int64](ctx, q, lockRunPush+s.db.Lock, root)
	if err != nil {
		return db.RefuseNone(err)
	}
	n, err := q.Exec(ctx, replace, root, scope, p.Config.GetId(), body, s.db.Millis(), p.Version)
	if err != nil || n > 0 {
		return err
	}
	have, err := db.Value[int](ctx, q, countOfTask, root, scope)
	if err != nil {
		return err
	}
	if have >= runs.MaxPushTask {
		return db.Refuse(runs.ErrPushTask)
	}
	if err := Room(ctx, q, p.Task.Owner); err != nil {
		return err
	}
	stmts := []db.Stmt{db.With(insert, root, scope, p.Config.GetId(), p.Task.Owner, body, s.db.Millis(), p.Seen, p.Version, Epoch())}
	if pushed == 0 {
		stmts = append(stmts, db.With(markRun, root))
	}
	return db.Exec(ctx, q, stmts...)
}

// pushColumns are the columns that pushRow scans.
const pushColumns = ` id, scope, config, owner, body, seen, part, tries, since, failing, ended, error, version`

// pushRow scans a row of pushColumns. more receives the columns after those.
func (s *Pushes) pushRow(r *sql.Rows, more ...any) (runs.Push, error) {
	var root, scope, id string
	var body []byte
	var since, failing, ended int64
	var p runs.Push
	dest := []any{&root, &scope, &id, &p.Task.Owner, &body, &p.Seen, &p.Part, &p.Tries, &since, &failing, &ended, &p.Error, &p.Version}
	if err := r.Scan(append(dest, more...)...); err != nil {
		return p, err
	}
	p.Task.ID = agent.ChildTask(root, scope)
	p.Failing, p.Ended = failing != 0, ended != 0
	if since != 0 {
		p.Since = time.UnixMilli(since)
	}
	var err error
	p.Config, err = s.unsealPush(root, scope, id, body)
	return p, err
}

// Push returns a configuration of a task. The error is runs.ErrNotFound if it does not exist.
func (s *Pushes) Push(ctx context.Context, k runs.Key, id string) (runs.Push, error) {
	list, err := s.listPushes(ctx, k, `config = $3`, id, true)
	if err == nil && len(list) == 0 {
		err = runs.ErrNotFound
	}
	if err != nil {
		return runs.Push{}, err
	}
	return list[0], nil
}

// ListPushes returns at most limit configurations of a task, ordered by id, with ids greater than
// after. It omits damaged ones.
func (s *Pushes) ListPushes(ctx context.Context, k runs.Key, after string, limit int) ([]runs.Push, error) {
	list, err := s.listPushes(ctx, k, `config > $3 ORDER BY config`, after, false)
	return list[:min(len(list), limit)], err
}

// listPushes returns configurations of a task that match a condition. If strict is true, a damaged
// one is an error; otherwise it is omitted.
func (s *Pushes) listPushes(ctx context.Context, k runs.Key, which, arg string, strict bool) ([]runs.Push, error) {
	root, scope, err := record.Owned(ctx, s.db.Reader(), k)
	if err != nil {
		return nil, err
	}
	var list []runs.Push
	err = db.Each(ctx, s.db.Reader(), func() { list = nil }, func(r *sql.Rows) error {
		p, err := s.pushRow(r)
		if !strict && s.leftOut(p, err) {
			return nil
		}
		list = append(list, p)
		return err
	}, `SELECT`+pushColumns+` FROM push_config WHERE id = $1 AND scope = $2 AND `+which, root, scope, arg)
	return list, err
}

// leftOut reports whether a configuration is damaged, and logs that.
func (s *Pushes) leftOut(p runs.Push, err error) bool {
	damaged := errors.Is(err, runs.ErrDataLoss)
	if damaged {
		s.db.Log.Error("a push configuration is left out", zap.String("task", p.Task.ID), zap.Error(err))
	}
	return damaged
}

// DeletePush deletes a configuration and its undeliverable notifications.
func (s *Pushes) DeletePush(ctx context.Context, k runs.Key, id string) error {
	root, scope, err := record.Owned(ctx, s.db.Reader(), k)
	if err != nil {
		return err
	}
	return s.db.Do(ctx, func(ctx context.Context, q db.Querier) error {
		return db.Exec(ctx, q, db.With(deleteConfig, root, scope, id), db.With(deleteDead, root, scope, id))
	})
}

// DeadPushes returns the newest undeliverable notifications of a task, at most limit, and their
// total number.
func (s *Pushes) DeadPushes(ctx context.Context, k runs.Key, limit int) (list []runs.DeadPush, total int, err error) {
	root, scope, err := record.Owned(ctx, s.db.Reader(), k)
	if err != nil {
		return nil, 0, err
	}
	q := s.db.Reader()
	if err := q.Scan(ctx, []any{&total}, countDead, root, scope); err != nil || total == 0 {
		return nil, 0, err
	}
	list, err = db.List(ctx, q, func(r *sql.Rows) (runs.DeadPush, error) {
		var d runs.DeadPush
		var at int64
		err := r.Scan(&d.Config, &d.Seq, &d.Part, &d.Tries, &d.Error, &at)
		d.At = time.UnixMilli(at)
		return d, err
	}, selectDead, root, scope, int64(limit))
	return list, total, err
}
