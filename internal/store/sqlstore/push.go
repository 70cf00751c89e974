package sqlstore

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
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// pushKey is the name of the setting with the key that encrypts push configurations unless one is configured.
const pushKey = "push_key"

// errOutdated means that a run has a push configuration or an input that its journal did not know.
var errOutdated = errors.New("a push configuration or an input came")

// retry writes a batch again that was not admitted because of errOutdated.
type retry struct {
	*batch
	again bool // an earlier attempt may still take effect
}

// take implements source.
func (r retry) take() *op {
	o := r.op()
	o.again = r.again
	return o
}

// isLarge implements source.
func (r retry) isLarge() bool { return r.ended() && r.bytes > maxQuiet || r.size() >= largeChange }

// of implements source.
func (r retry) of() string { return a2a.AccountOf(r.j.owner) }

// wakeIdle makes the idle push configurations due that must report a batch.
const wakeIdle = `UPDATE push_config SET due = $4
WHERE id = $1 AND due IS NULL AND ended = 0 AND EXISTS (SELECT 1 FROM run WHERE run.id = $1 AND epoch = $2 AND seq = $3)`

// insertPush stores the configuration with which a task is created.
const insertPush = `INSERT INTO push_config (id, scope, config, owner, body, due, seen, version, epoch) SELECT $1, '', $4, $3, $5, $6, 0, $7, $8
WHERE ` + mine + ` AND EXISTS (SELECT 1 FROM run WHERE run.id = $1 AND run.owner = $3) ON CONFLICT DO NOTHING`

// pushEpoch returns the first epoch of a new configuration. It is random, so that it differs from
// the epochs of a deleted configuration with the same id, whose claim may still be in use.
func pushEpoch() int64 { return rand.Int64N(1 << 62) } //nolint:gosec // no secret

// pushName returns what a sealed configuration is bound to: its task and id.
func pushName(root, scope, id string) []byte { return []byte(root + "\x00" + scope + "\x00" + id) }

// sealPush returns an encrypted configuration.
func (s *Store) sealPush(root, scope string, c *a2av1.TaskPushNotificationConfig) ([]byte, error) {
	body, err := proto.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode a push configuration of %s: %w", root, err)
	}
	return s.keys.seal(pushName(root, scope, c.GetId()), body), nil
}

// unsealPush decrypts a configuration. The error is a2a.ErrDataLoss.
func (s *Store) unsealPush(root, scope, id string, body []byte) (*a2av1.TaskPushNotificationConfig, error) {
	b, err := s.keys.open(pushName(root, scope, id), body)
	c := &a2av1.TaskPushNotificationConfig{}
	var missing errNoKey
	switch {
	case errors.As(err, &missing):
		return nil, fmt.Errorf("push configuration %s of %s: %w: %w", id, root, a2a.ErrDataLoss, missing)
	case err != nil || proto.Unmarshal(b, c) != nil:
		return nil, fmt.Errorf("push configuration %s of %s: %w", id, root, a2a.ErrDataLoss)
	}
	return c, nil
}

// PushWake returns a channel that receives when a configuration may have become due.
func (s *Store) PushWake() <-chan struct{} { return s.pushed }

// wakePush signals that a configuration may have become due.
func (s *Store) wakePush() { store.Poke(s.pushed) }

// roomForPush returns a refusal if an owner has the maximum number of configurations.
func (s *Store) roomForPush(ctx context.Context, q querier, owner string) error {
	var n int
	err := q.scan(ctx, []any{&n}, `SELECT count(*) FROM push_config WHERE owner = $1 AND ended = 0`, owner)
	if err == nil && n >= a2a.MaxPushOwner {
		return refusal{a2a.ErrPushOwner}
	}
	return err
}

// PutPush stores a configuration, and replaces the one with the same id.
func (s *Store) PutPush(ctx context.Context, p a2a.Push) error {
	if err := s.Ready(); err != nil { // fail at once, not after all attempts
		return err
	}
	root, scope, err := s.owned(ctx, p.Task)
	if err != nil {
		return err
	}
	body, err := s.sealPush(root, scope, p.Config)
	if err != nil {
		return err
	}
	defer s.wakePush()
	return s.unrecorded(s.db.do(ctx, func(ctx context.Context, q querier) error {
		return s.putPush(ctx, q, root, scope, p, body)
	}))
}

// putPush stores a configuration under the lock of its run.
func (s *Store) putPush(ctx context.Context, q querier, root, scope string, p a2a.Push, body []byte) error {
	var pushed int64
	if err := q.scan(ctx, []any{&pushed}, `SELECT push FROM run WHERE id = $1`+s.db.lock(), root); err != nil {
		return refuseNone(err)
	}
	n, err := q.exec(ctx, `UPDATE push_config SET body = $4, version = $6, epoch = epoch + 1, due = $5, held = 0, tries = 0, since = 0, failing = 0, error = ''
WHERE id = $1 AND scope = $2 AND config = $3`, root, scope, p.Config.GetId(), body, s.now(), p.Version)
	if err != nil || n > 0 {
		return err
	}
	var have int
	if err := q.scan(ctx, []any{&have}, `SELECT count(*) FROM push_config WHERE id = $1 AND scope = $2`, root, scope); err != nil {
		return err
	}
	if have >= a2a.MaxPushTask {
		return refusal{a2a.ErrPushTask}
	}
	if err := s.roomForPush(ctx, q, p.Task.Owner); err != nil {
		return err
	}
	if _, err := q.exec(ctx, `INSERT INTO push_config (id, scope, config, owner, body, due, seen, version, epoch) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		root, scope, p.Config.GetId(), p.Task.Owner, body, s.now(), p.Seen, p.Version, pushEpoch()); err != nil {
		return err
	}
	if pushed == 0 {
		_, err = q.exec(ctx, `UPDATE run SET push = 1 WHERE id = $1`, root)
	}
	return err
}

// pushColumns are the columns that pushRow scans.
const pushColumns = ` id, scope, config, owner, body, seen, part, tries, since, failing, ended, error, version`

// pushRow scans a row of pushColumns. more receives the columns after those.
func (s *Store) pushRow(r *sql.Rows, more ...any) (a2a.Push, error) {
	var root, scope, id string
	var body []byte
	var since, failing, ended int64
	var p a2a.Push
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

// Push returns a configuration of a task. The error is a2a.ErrNotFound if it does not exist.
func (s *Store) Push(ctx context.Context, k a2a.Key, id string) (a2a.Push, error) {
	list, err := s.listPushes(ctx, k, `config = $3`, id, true)
	if err == nil && len(list) == 0 {
		err = a2a.ErrNotFound
	}
	if err != nil {
		return a2a.Push{}, err
	}
	return list[0], nil
}

// ListPushes returns at most limit configurations of a task, ordered by id, with ids greater than
// after. It omits damaged ones.
func (s *Store) ListPushes(ctx context.Context, k a2a.Key, after string, limit int) ([]a2a.Push, error) {
	list, err := s.listPushes(ctx, k, `config > $3 ORDER BY config`, after, false)
	return list[:min(len(list), limit)], err
}

// listPushes returns configurations of a task that match a condition. If strict is true, a damaged
// one is an error; otherwise it is omitted.
func (s *Store) listPushes(ctx context.Context, k a2a.Key, which, arg string, strict bool) ([]a2a.Push, error) {
	root, scope, err := s.owned(ctx, k)
	if err != nil {
		return nil, err
	}
	var list []a2a.Push
	err = each(ctx, s.db.reader(), func() { list = nil }, func(r *sql.Rows) error {
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
func (s *Store) leftOut(p a2a.Push, err error) bool {
	damaged := errors.Is(err, a2a.ErrDataLoss)
	if damaged {
		s.cfg.Log.Error("a push configuration is left out", zap.String("task", p.Task.ID), zap.Error(err))
	}
	return damaged
}

// DeletePush deletes a configuration and its undeliverable notifications.
func (s *Store) DeletePush(ctx context.Context, k a2a.Key, id string) error {
	root, scope, err := s.owned(ctx, k)
	if err != nil {
		return err
	}
	return s.unrecorded(s.db.do(ctx, func(ctx context.Context, q querier) error {
		for _, text := range []string{
			`DELETE FROM push_config WHERE id = $1 AND scope = $2 AND config = $3`,
			`DELETE FROM push_dead WHERE id = $1 AND scope = $2 AND config = $3`,
		} {
			if _, err := q.exec(ctx, text, root, scope, id); err != nil {
				return err
			}
		}
		return nil
	}))
}

// DeadPushes returns the newest undeliverable notifications of a task, at most limit, and their
// total number.
func (s *Store) DeadPushes(ctx context.Context, k a2a.Key, limit int) (list []a2a.DeadPush, total int, err error) {
	root, scope, err := s.owned(ctx, k)
	if err != nil {
		return nil, 0, err
	}
	q := s.db.reader()
	if err := q.scan(ctx, []any{&total}, `SELECT count(*) FROM push_dead WHERE id = $1 AND scope = $2`, root, scope); err != nil || total == 0 {
		return nil, 0, err
	}
	err = each(ctx, q, func() { list = nil }, func(r *sql.Rows) error {
		var d a2a.DeadPush
		var at int64
		err := r.Scan(&d.Config, &d.Seq, &d.Part, &d.Tries, &d.Error, &at)
		d.At = time.UnixMilli(at)
		list = append(list, d)
		return err
	}, `SELECT config, seq, part, tries, error, at FROM push_dead WHERE id = $1 AND scope = $2
ORDER BY at DESC, seq DESC, part DESC, config LIMIT $3`, root, scope, int64(limit))
	return list, total, err
}
