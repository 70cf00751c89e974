package sqlstore

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
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

// pushKey is the setting with the key that configurations are sealed with.
const pushKey = "push_key"

// errUnknownPush: a run has a push configuration that its journal did not know of.
var errUnknownPush = errors.New("a push configuration came")

// retry writes a batch once more that nothing has come of.
type retry struct {
	*batch
	again bool // an earlier try may still come about
}

// take implements source.
func (r retry) take() *op {
	o := r.op()
	o.again = r.again
	return o
}

// wakeIdle makes those due that are to be told of what a batch puts on record.
const wakeIdle = `UPDATE push_config SET due = $4
WHERE id = $1 AND due IS NULL AND ended = 0 AND EXISTS (SELECT 1 FROM run WHERE run.id = $1 AND epoch = $2 AND seq = $3)`

// insertPush keeps the configuration that a task is created with.
const insertPush = `INSERT INTO push_config (id, scope, config, owner, body, due, seen, version, epoch) SELECT $1, '', $4, $3, $5, $6, 0, $7, $8
WHERE ` + mine + ` AND EXISTS (SELECT 1 FROM run WHERE run.id = $1 AND run.owner = $3) ON CONFLICT DO NOTHING`

// pushEpoch is where a new configuration begins to count its claims: not where one
// did that was deleted, whose holder may still be at work.
func pushEpoch() int64 { return rand.Int64N(1 << 62) } //nolint:gosec // no secret

// seal keeps what holds secrets from who sees a part of the database, and finds
// out what is not as it was written.
type seal struct{ aead cipher.AEAD }

func newSeal(key []byte) seal {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // 32 bytes, of our own
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return seal{aead}
}

func pushName(root, scope, id string) []byte { return []byte(root + "\x00" + scope + "\x00" + id) }

func (s *Store) sealPush(root, scope string, c *a2av1.TaskPushNotificationConfig) ([]byte, error) {
	body, err := proto.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode a push configuration of %s: %w", root, err)
	}
	return s.pushes.aead.Seal(nil, nil, body, pushName(root, scope, c.GetId())), nil //nolint:gosec // the cipher puts a random nonce in front by itself
}

// unsealPush returns a configuration as it was sealed. a2a.ErrDataLoss.
func (s *Store) unsealPush(root, scope, id string, body []byte) (*a2av1.TaskPushNotificationConfig, error) {
	b, err := s.pushes.aead.Open(nil, nil, body, pushName(root, scope, id))
	c := &a2av1.TaskPushNotificationConfig{}
	if err != nil || proto.Unmarshal(b, c) != nil {
		return nil, fmt.Errorf("push configuration %s of %s: %w", id, root, a2a.ErrDataLoss)
	}
	return c, nil
}

// takePushKey takes over the key of the store that configurations are copied from.
func (s *Store) takePushKey(ctx context.Context, from *Store) error {
	key, err := from.secret(ctx, pushKey)
	if err != nil {
		return err
	}
	if err := s.db.do(ctx, func(ctx context.Context, q querier) error {
		_, err := q.exec(ctx, `UPDATE setting SET value = $2 WHERE name = $1`, pushKey, key)
		return err
	}); err != nil {
		return err
	}
	s.pushes = newSeal(key)
	return nil
}

// PushWake receives when something may be due that was not.
func (s *Store) PushWake() <-chan struct{} { return s.pushed }

func (s *Store) wakePush() { store.Poke(s.pushed) }

// roomForPush refuses an owner that has as many as it may have.
func (s *Store) roomForPush(ctx context.Context, q querier, owner string) error {
	var n int
	err := q.scan(ctx, []any{&n}, `SELECT count(*) FROM push_config WHERE owner = $1 AND ended = 0`, owner)
	if err == nil && n >= a2a.MaxPushOwner {
		return refusal{a2a.ErrPushOwner}
	}
	return err
}

// PutPush keeps a configuration, in the place of the one with its id.
func (s *Store) PutPush(ctx context.Context, p a2a.Push) error {
	if err := s.Ready(); err != nil { // said at once, not after all tries
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

// putPush keeps it under the lock of its run.
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

const pushColumns = ` id, scope, config, owner, body, seen, part, tries, since, failing, ended, error, version`

// pushRow scans what pushColumns name; more are columns behind them.
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

// Push returns a configuration of a task.
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

// ListPushes returns configurations of a task, by id, behind an id, without those
// that are damaged. A task has few: the limit counts what is returned.
func (s *Store) ListPushes(ctx context.Context, k a2a.Key, after string, limit int) ([]a2a.Push, error) {
	list, err := s.listPushes(ctx, k, `config > $3 ORDER BY config`, after, false)
	return list[:min(len(list), limit)], err
}

// listPushes returns some of a task; strict fails where one is damaged.
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

// leftOut reports whether a configuration is damaged, and logs it.
func (s *Store) leftOut(p a2a.Push, err error) bool {
	damaged := errors.Is(err, a2a.ErrDataLoss)
	if damaged {
		s.cfg.Log.Error("a push configuration is left out", zap.String("task", p.Task.ID), zap.Error(err))
	}
	return damaged
}

// DeletePush deletes a configuration and what was given up of it.
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

// DeadPushes returns the notifications of a task that were given up.
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
