package admin

import (
	"context"
	"database/sql"
	"fmt"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
)

// keyTopic is the topic of notifications that API keys have changed, see catalogTopic.
const keyTopic = "~key"

// Keys are the API keys that were made by the API, and the rights of owners. It implements auth.Store.
type Keys struct{ DB *db.DB }

// Statements of the table api_key.
const (
	selectKeys = `SELECT hash, body FROM api_key ORDER BY id`
	putKeyRow  = `INSERT INTO api_key (id, hash, body) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET body = excluded.body`
)

// Keys implements auth.Store.
func (s *Keys) Keys(ctx context.Context) ([]auth.StoredKey, error) {
	return db.List(ctx, s.DB.Reader(), func(rows *sql.Rows) (auth.StoredKey, error) {
		k := auth.StoredKey{Key: &teamv1.Key{}}
		var body []byte
		if err := rows.Scan(&k.Hash, &body); err != nil {
			return k, err
		}
		if err := proto.Unmarshal(body, k.Key); err != nil {
			return k, fmt.Errorf("%w: an API key cannot be decoded: %w", runs.ErrDataLoss, err)
		}
		return k, nil
	}, selectKeys)
}

// PutKey implements auth.Store.
func (s *Keys) PutKey(ctx context.Context, k auth.StoredKey) error {
	body, err := proto.Marshal(k.Key)
	if err != nil {
		return err
	}
	err = Change(ctx, s.DB, func(ctx context.Context, q db.Querier) error {
		return db.Exec(ctx, q, db.With(putKeyRow, k.Key.GetId(), k.Hash, body))
	})
	if err != nil {
		return err
	}
	s.DB.Announce(keyTopic, store.AllOwners)
	return nil
}

// WatchKeys implements auth.Store. Changes by other replicas wake the channel over PostgreSQL.
func (s *Keys) WatchKeys() (wake <-chan struct{}, stop func()) { return s.DB.Watch(keyTopic) }
