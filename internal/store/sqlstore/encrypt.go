package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/store"
)

// keySetting begins the names of the settings that list the configured keys under which secrets may be
// encrypted. Each value is the empty text, encrypted with the key.
const keySetting = "encryption_key:"

// pageKey is the name of the setting with the key of page tokens.
const pageKey = "page_token_key"

const (
	// keysEvery is how often a process looks whether others have begun to encrypt with further keys.
	keysEvery = 5 * time.Second
	// encryptBatch is how many values are encrypted again in one transaction.
	encryptBatch = 200
)

// registered returns the ids of the keys under which secrets may be encrypted, with their test values.
func (s *Store) registered(ctx context.Context, q querier) (known map[string][]byte, err error) {
	err = each(ctx, q, func() { known = map[string][]byte{} }, func(r *sql.Rows) error {
		var name string
		var value []byte
		err := r.Scan(&name, &value)
		known[strings.TrimPrefix(name, keySetting)] = value
		return err
	}, `SELECT name, value FROM setting WHERE substr(name, 1, `+fmt.Sprint(len(keySetting))+`) = $1`, keySetting)
	return known, err
}

// check returns an error unless the keyring has all keys of a store, with the right values.
func (r *keyring) check(known map[string][]byte) error {
	for _, id := range slices.Sorted(maps.Keys(known)) {
		_, err := r.open([]byte(keySetting+id), known[id])
		var missing errNoKey
		switch {
		case errors.As(err, &missing):
			return err
		case err != nil:
			return errWrongKey{id}
		}
	}
	return nil
}

// unlock reads the keys of the store, and checks that the configured ones fit.
func (s *Store) unlock(ctx context.Context) error {
	stored, err := s.secret(ctx, pushKey)
	if err != nil {
		return err
	}
	if s.keys, err = newKeyring(stored, s.cfg.Keys); err != nil || s.cfg.Sealed {
		return err
	}
	known, err := s.registered(ctx, s.db.reader())
	if err != nil {
		return err
	}
	if err := s.keys.check(known); err != nil {
		return err
	}
	if err := s.register(ctx, known); err != nil {
		return err
	}
	page, err := s.secret(ctx, pageKey)
	if _, n := parseSealed(page); err == nil && n > 0 {
		page, err = s.keys.open([]byte(pageKey), page)
	}
	if err != nil {
		return fmt.Errorf("read the key of page tokens: %w", err)
	}
	s.tokens = store.NewSealer(page)
	return nil
}

// register records the first configured key as one under which secrets are encrypted.
func (s *Store) register(ctx context.Context, known map[string][]byte) error {
	if len(s.keys.ids) == 0 || known[s.keys.ids[0]] != nil {
		return nil
	}
	name := keySetting + s.keys.ids[0]
	err := s.db.do(ctx, func(ctx context.Context, q querier) error {
		_, err := q.exec(ctx, `INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING`, name, s.keys.seal([]byte(name), nil))
		return err
	})
	if err != nil {
		return err
	}
	if known, err = s.registered(ctx, s.db.reader()); err != nil { // another process may have registered the id with another value
		return err
	}
	return s.keys.check(known)
}

// watchKeys stops the process when others encrypt with a key that it does not have: it must not claim deliveries that it
// cannot make. It runs until ctx ends.
func (s *Store) watchKeys(ctx context.Context) {
	if s.db.single() {
		return // there are no others
	}
	tick := time.NewTicker(keysEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		known, err := s.registered(ctx, s.db.reader())
		if err != nil {
			continue // Ready reports a store that cannot be read
		}
		if err := s.keys.check(known); err != nil {
			s.cfg.Log.Error("server.encryption: " + err.Error())
			_ = s.db.state().latch(err)
			return
		}
	}
}

// Reencrypt encrypts all secrets again that are not encrypted under the first configured key, so that the others can be
// removed from the configuration. Servers may use the store if all of them have that key as their first one. It leaves out
// damaged secrets. n is the number of secrets that were encrypted again.
func (s *Store) Reencrypt(ctx context.Context) (n int, err error) {
	if len(s.keys.ids) == 0 {
		return 0, errors.New("no key is configured; add one to server.encryption.keys")
	}
	if n, err = s.reencryptPageKey(ctx); err != nil {
		return n, err
	}
	var after sealedPush
	for {
		list, err := s.otherPushes(ctx, after)
		if err != nil {
			return n, err
		}
		if len(list) == 0 {
			break
		}
		after = list[len(list)-1]
		done, err := s.reencryptPushes(ctx, list)
		n += done
		if err != nil {
			return n, err
		}
	}
	return n, s.db.do(ctx, func(ctx context.Context, q querier) error {
		_, err := q.exec(ctx, `DELETE FROM setting WHERE substr(name, 1, `+fmt.Sprint(len(keySetting))+`) = $1 AND name <> $2`, keySetting, keySetting+s.keys.ids[0])
		return err
	})
}

// reencryptPageKey encrypts the key of page tokens again.
func (s *Store) reencryptPageKey(ctx context.Context) (n int, err error) {
	id, name := s.keys.ids[0], []byte(pageKey)
	sealed, err := s.secret(ctx, pageKey)
	if err != nil || slices.Equal(sealed[:min(len(sealed), len(sealedHeader(id)))], sealedHeader(id)) {
		return 0, err
	}
	plain := sealed
	if _, header := parseSealed(sealed); header > 0 {
		if plain, err = s.keys.open(name, sealed); err != nil {
			return 0, fmt.Errorf("read the key of page tokens: %w", err)
		}
	}
	return 1, s.db.do(ctx, func(ctx context.Context, q querier) error {
		_, err := q.exec(ctx, `UPDATE setting SET value = $3 WHERE name = $1 AND value = $2`, pageKey, sealed, s.keys.seal(name, plain))
		return err
	})
}

// sealedPush is a stored push configuration.
type sealedPush struct {
	root, scope, id string
	body            []byte
}

// otherPushes returns push configurations after another one that are not encrypted under the first configured key, in
// order.
func (s *Store) otherPushes(ctx context.Context, after sealedPush) (list []sealedPush, err error) {
	header := sealedHeader(s.keys.ids[0])
	err = each(ctx, s.db.reader(), func() { list = nil }, func(r *sql.Rows) error {
		var p sealedPush
		err := r.Scan(&p.root, &p.scope, &p.id, &p.body)
		list = append(list, p)
		return err
	}, fmt.Sprintf(`SELECT id, scope, config, body FROM push_config WHERE substr(body, 1, %d) <> $1 AND (id, scope, config) > ($2, $3, $4)
ORDER BY id, scope, config LIMIT %d`, len(header), encryptBatch), header, after.root, after.scope, after.id)
	return list, err
}

// reencryptPushes encrypts push configurations again that have not changed meanwhile. n is their number.
func (s *Store) reencryptPushes(ctx context.Context, list []sealedPush) (n int, err error) {
	err = s.db.do(ctx, func(ctx context.Context, q querier) error {
		n = 0
		for _, p := range list {
			name := pushName(p.root, p.scope, p.id)
			plain, err := s.keys.open(name, p.body)
			switch missing := (errNoKey{}); {
			case errors.As(err, &missing): // a server without the first key has written it since
				return refuse(err)
			case err != nil:
				continue // reading it reports the damage
			}
			changed, err := q.exec(ctx, `UPDATE push_config SET body = $5 WHERE id = $1 AND scope = $2 AND config = $3 AND body = $4`,
				p.root, p.scope, p.id, p.body, s.keys.seal(name, plain))
			if err != nil {
				return err
			}
			n += int(changed)
		}
		return nil
	})
	return n, err
}

// takeKeys replaces the keys of s by those of another store, whose secrets are then copied unchanged.
func (s *Store) takeKeys(ctx context.Context, from *Store) error {
	stored, err := from.secret(ctx, pushKey)
	if err != nil {
		return err
	}
	known, err := from.registered(ctx, from.db.reader())
	if err != nil {
		return err
	}
	ring, err := newKeyring(stored, nil)
	if err != nil {
		return err
	}
	if err := s.db.do(ctx, func(ctx context.Context, q querier) error {
		if _, err := q.exec(ctx, `UPDATE setting SET value = $2 WHERE name = $1`, pushKey, stored); err != nil || len(known) == 0 {
			return err
		}
		for id, value := range known {
			if _, err := q.exec(ctx, `INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING`, keySetting+id, value); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	s.keys.stored = ring.stored
	return nil
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
	known, err := s.registered(ctx, s.db.reader())
	if err != nil {
		return 0, err
	}
	if known[id] == nil {
		return 0, fmt.Errorf("nothing in the store is encrypted under the key %q; keys of the store: %s", id, cmp.Or(strings.Join(slices.Sorted(maps.Keys(known)), ", "), "none"))
	}
	err = s.db.do(ctx, func(ctx context.Context, q querier) error {
		header := sealedHeader(id)
		encrypted := fmt.Sprintf(`substr(%%s, 1, %d) = $1`, len(header))
		var err error
		// A webhook that is made again with the same id must not show what the old one could not deliver.
		if _, err := q.exec(ctx, `DELETE FROM push_dead WHERE (id, scope, config) IN (SELECT id, scope, config FROM push_config WHERE `+fmt.Sprintf(encrypted, "body")+`)`, header); err != nil {
			return err
		}
		if webhooks, err = q.exec(ctx, `DELETE FROM push_config WHERE `+fmt.Sprintf(encrypted, "body"), header); err != nil {
			return err
		}
		if _, err := q.exec(ctx, `DELETE FROM setting WHERE `+fmt.Sprintf(encrypted, "value")+` AND name = $2`, header, pageKey); err != nil {
			return err
		}
		_, err = q.exec(ctx, `DELETE FROM setting WHERE name = $1`, keySetting+id)
		return err
	})
	return webhooks, err
}
