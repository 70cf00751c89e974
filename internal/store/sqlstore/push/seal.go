package push

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentteams/team-server/internal/store/sqlstore/db"
)

// sealed is a stored configuration.
type sealed struct {
	root, scope, id string
	body            []byte
}

// encryptBatch is how many configurations are encrypted again in one transaction.
const encryptBatch = 200

// reseal replaces a configuration that has not changed meanwhile.
const reseal = `UPDATE push_config SET body = $5 WHERE id = $1 AND scope = $2 AND config = $3 AND body = $4`

// Reencrypt encrypts all configurations again that are not encrypted under the first configured key. It leaves out
// damaged ones. n is the number of configurations that were encrypted again.
func (s *Pushes) Reencrypt(ctx context.Context) (n int, err error) {
	var after sealed
	for {
		list, err := s.others(ctx, after)
		if err != nil || len(list) == 0 {
			return n, err
		}
		after = list[len(list)-1]
		done, err := s.reencrypt(ctx, list)
		n += done
		if err != nil {
			return n, err
		}
	}
}

// others returns configurations after another one that are not encrypted under the first configured key, in order.
func (s *Pushes) others(ctx context.Context, after sealed) ([]sealed, error) {
	key, err := s.db.FirstKey()
	if err != nil {
		return nil, err
	}
	header := db.SealedHeader(key)
	return db.Rows(ctx, s.db.Reader(), func(p *sealed) []any { return []any{&p.root, &p.scope, &p.id, &p.body} }, fmt.Sprintf(`SELECT id, scope, config, body FROM push_config WHERE substr(body, 1, %d) <> $1 AND (id, scope, config) > ($2, $3, $4)
ORDER BY id, scope, config LIMIT %d`, len(header), encryptBatch), header, after.root, after.scope, after.id)
}

// reencrypt encrypts configurations again that have not changed meanwhile. n is their number.
func (s *Pushes) reencrypt(ctx context.Context, list []sealed) (n int, err error) {
	err = s.db.Do(ctx, func(ctx context.Context, q db.Querier) error {
		n = 0
		for _, p := range list {
			name := pushName(p.root, p.scope, p.id)
			plain, err := s.db.Unseal(name, p.body)
			switch missing := (db.NoKeyError{}); {
			case errors.As(err, &missing): // a server without the first key has written it since
				return db.Refuse(err)
			case err != nil:
				continue // reading it reports the damage
			}
			changed, err := q.Exec(ctx, reseal,
				p.root, p.scope, p.id, p.body, s.db.Seal(name, plain))
			if err != nil {
				return err
			}
			n += int(changed)
		}
		return nil
	})
	return n, err
}

// DeleteUnder deletes the configurations that are encrypted under a key, and what they could not deliver: a
// configuration that is made again with the same id must not show that. n is the number of configurations.
func DeleteUnder(ctx context.Context, q db.Querier, key string) (n int64, err error) {
	header := db.SealedHeader(key)
	under := fmt.Sprintf(`substr(body, 1, %d) = $1`, len(header))
	if _, err := q.Exec(ctx, `DELETE FROM push_dead WHERE (id, scope, config) IN (SELECT id, scope, config FROM push_config WHERE `+under+`)`, header); err != nil {
		return 0, err
	}
	return q.Exec(ctx, `DELETE FROM push_config WHERE `+under, header)
}
