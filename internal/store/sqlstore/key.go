package sqlstore

import (
	"context"
	"database/sql"
	"fmt"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
)

// keyTopic is the topic of notifications that API keys have changed, see catalogTopic.
const keyTopic = "~key"

// Keys implements auth.Store.
func (s *Store) Keys(ctx context.Context) (list []auth.StoredKey, err error) {
	err = each(ctx, s.db.reader(), func() { list = nil }, func(rows *sql.Rows) error {
		k := auth.StoredKey{Key: &teamv1.Key{}}
		var body []byte
		if err := rows.Scan(&k.Hash, &body); err != nil {
			return err
		}
		if err := proto.Unmarshal(body, k.Key); err != nil {
			return fmt.Errorf("%w: an API key cannot be decoded: %w", a2a.ErrDataLoss, err)
		}
		list = append(list, k)
		return nil
	}, `SELECT hash, body FROM api_key ORDER BY id`)
	return list, err
}

// PutKey implements auth.Store.
func (s *Store) PutKey(ctx context.Context, k auth.StoredKey) error {
	body, err := proto.Marshal(k.Key)
	if err != nil {
		return err
	}
	err = s.change(ctx, func(ctx context.Context, q querier) error {
		_, err := q.exec(ctx, `INSERT INTO api_key (id, hash, body) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET body = excluded.body`, k.Key.GetId(), k.Hash, body)
		return err
	})
	if err != nil {
		return s.unrecorded(err)
	}
	s.announce(keyTopic, store.Everybody)
	return nil
}

// WatchKeys implements auth.Store. Changes by other replicas wake the channel over PostgreSQL.
func (s *Store) WatchKeys() (wake <-chan struct{}, stop func()) { return s.hub.watch(keyTopic) }
