package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/push"
)

// Reencrypt encrypts all secrets again that are not encrypted under the first configured key, so that the others can be
// removed from the configuration. Servers may use the store if all of them have that key as their first one. It leaves out
// damaged secrets. n is the number of secrets that were encrypted again.
func (s *Store) Reencrypt(ctx context.Context) (n int, err error) {
	if _, err := s.db.FirstKey(); err != nil {
		return 0, err
	}
	if n, err = s.db.ReencryptPageKey(ctx); err != nil {
		return n, err
	}
	webhooks, err := s.pushes.Reencrypt(ctx)
	if n += webhooks; err != nil {
		return n, err
	}
	return n, s.db.DropOtherKeys(ctx)
}

// ForgetSecrets deletes what is encrypted under a key that is lost: webhooks, and the key of page tokens,
// which gets a new value. No server may use the store. It returns the number of webhooks.
func ForgetSecrets(ctx context.Context, url, id string, log *zap.Logger) (webhooks int64, err error) {
	s, err := Open(ctx, url, Config{Sealed: true, Log: log})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.unused(ctx); err != nil {
		return 0, err
	}
	known, err := db.RegisteredKeys(ctx, s.db.Reader())
	if err != nil {
		return 0, err
	}
	if known[id] == nil {
		return 0, fmt.Errorf("nothing in the store is encrypted under the key %q; keys of the store: %s", id, cmp.Or(strings.Join(slices.Sorted(maps.Keys(known)), ", "), "none"))
	}
	err = s.db.Do(ctx, func(ctx context.Context, q db.Querier) error {
		if webhooks, err = push.DeleteUnder(ctx, q, id); err != nil {
			return err
		}
		return db.DropKey(ctx, q, id)
	})
	return webhooks, err
}
