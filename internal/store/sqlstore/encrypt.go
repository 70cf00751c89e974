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
	"go.uber.org/zap/zapcore"

	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
)

// keySetting begins the names of the settings that list the configured keys under which secrets may be
// encrypted. Each value is the empty text, encrypted with the key.
const keySetting = "encryption_key:"

// pageKey is the name of the setting with the key of page tokens.
const pageKey = "page_token_key"

const (
	encryptEvery = 5 * time.Second
	encryptBatch = 200
	// cleanPasses is how often a replica must find nothing to encrypt again before a key counts as no longer
	// used: others may need until their next pass to use the new one.
	cleanPasses = 3
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

// choose makes the first configured key encrypt that is registered; without one, the key in the store.
func (r *keyring) choose(known map[string][]byte) {
	for _, id := range r.ids {
		if known[id] != nil {
			r.use(id)
			return
		}
	}
	r.use("")
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
	s.keys.choose(known)
	var other errOtherValue
	var wrong errWrongKey
	if err := s.adoptKey(ctx); errors.As(err, &other) || errors.As(err, &wrong) {
		return err // after other errors the background work tries again, and logs them
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

// errBehind says that replicas do not have the first configured key.
type errBehind struct {
	key      string
	replicas []string
}

func (e errBehind) Error() string {
	return fmt.Sprintf("the encryption key %q is not used yet, because these servers with the same store do not have it: %s; "+
		"restart them with it (a server that was killed is listed until its lease ends)", e.key, strings.Join(e.replicas, ", "))
}

// adoptKey makes the first configured key encrypt, if all live replicas have it.
func (s *Store) adoptKey(ctx context.Context) error {
	if len(s.keys.ids) == 0 || *s.keys.current.Load() == s.keys.ids[0] {
		return nil
	}
	first := s.keys.ids[0]
	err := s.db.do(ctx, func(ctx context.Context, q querier) error {
		behind, _, err := s.behind(ctx, q)
		if err != nil {
			return err
		}
		if len(behind) > 0 {
			return refusal{errBehind{first, behind}}
		}
		name := keySetting + first
		if _, err := q.exec(ctx, `INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING`, name, s.keys.sealWith(first, []byte(name), nil)); err != nil {
			return err
		}
		known, err := s.registered(ctx, q) // another replica may have the same id with another value
		if err != nil {
			return err
		}
		if err := s.keys.check(known); err != nil {
			return refusal{err}
		}
		return nil
	})
	if err == nil {
		s.keys.use(first)
	}
	return err
}

// errOtherValue says that a replica has a key with the same id and another value.
type errOtherValue struct{ key, replica string }

func (e errOtherValue) Error() string {
	return fmt.Sprintf("the encryption key %q has another value on the server %q with the same store; write the same value on all servers "+
		"(a server that was killed counts until its lease ends)", e.key, e.replica)
}

// behind returns the live replicas that do not have the first configured key, and whether all others
// encrypt with it, too. The error is errOtherValue if one has a configured key with another value.
func (s *Store) behind(ctx context.Context, q querier) (list []string, agreed bool, err error) {
	if s.db.single() { // rows are of earlier processes
		return nil, true, nil
	}
	err = each(ctx, q, func() { list, agreed = nil, true }, func(r *sql.Rows) error {
		var id, keys string
		if err := r.Scan(&id, &keys); err != nil {
			return err
		}
		first, has := "", false
		for i, key := range strings.Fields(keys) {
			name, theirs, _ := strings.Cut(key, ":")
			if mine := s.keys.prints[name]; mine != "" && mine != theirs {
				return refusal{errOtherValue{name, id}}
			}
			has = has || name == s.keys.ids[0]
			if i == 0 {
				first = name
			}
		}
		if !has {
			list = append(list, id)
		}
		agreed = agreed && first == s.keys.ids[0]
		return nil
	}, `SELECT id, keys FROM replica WHERE expires > $1 ORDER BY id`, s.now())
	return list, agreed, err
}

// encryption is the background work of a store: it brings all secrets under the first configured key, and
// stops the process if other replicas encrypt with a key that it does not have.
type encryption struct {
	s        *Store
	clean    int    // passes that have found nothing to encrypt again
	changed  int    // values that were encrypted again
	lastSaid string // the last logged text, which is not repeated
}

// run works until ctx ends.
func (e *encryption) run(ctx context.Context) {
	if e.s.db.single() && len(e.s.keys.ids) == 0 {
		return
	}
	tick := time.NewTicker(max(min(encryptEvery, e.s.cfg.Lease/3), time.Millisecond))
	defer tick.Stop()
	for {
		err := e.pass(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case e.s.Err() != nil && err != nil:
			e.say(zap.ErrorLevel, "server.encryption: "+err.Error())
		case errors.Is(err, a2a.ErrStorage):
			e.say(zap.WarnLevel, "cannot check the keys that encrypt the store", zap.Error(err))
		case err != nil:
			e.say(zap.WarnLevel, "server.encryption: "+err.Error())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// say logs a text, unless it was logged last.
func (e *encryption) say(level zapcore.Level, text string, fields ...zap.Field) {
	if e.lastSaid != text {
		e.lastSaid = text
		e.s.cfg.Log.Log(level, text, fields...)
	}
}

// pass checks the keys of the store, and encrypts again what is not encrypted under the first one.
func (e *encryption) pass(ctx context.Context) error {
	s := e.s
	known, err := s.registered(ctx, s.db.reader())
	if err != nil {
		return err
	}
	if err := s.keys.check(known); err != nil {
		return s.db.state().latch(err) // it must not claim deliveries that it cannot make
	}
	if len(s.keys.ids) == 0 {
		return nil
	}
	s.keys.choose(known)
	if err := s.adoptKey(ctx); err != nil {
		return err
	}
	first := s.keys.ids[0]
	delete(known, first)
	if e.clean >= cleanPasses {
		if len(known) == 0 {
			return nil
		}
		e.clean = 0 // a replica with another first key was back
	}
	if _, agreed, err := s.behind(ctx, s.db.reader()); err != nil || !agreed {
		return err // replicas with other first keys would encrypt it again, too
	}
	n, err := e.encryptAll(ctx, first)
	e.changed += n
	if e.clean++; n > 0 || err != nil {
		e.clean = 0
		return err
	}
	if e.clean < cleanPasses && !s.db.single() {
		return nil
	}
	e.clean = cleanPasses
	if err := s.retire(ctx, slices.Sorted(maps.Keys(known))); err != nil {
		return err
	}
	if rest := s.keys.ids[1:]; len(rest) > 0 {
		e.say(zap.InfoLevel, fmt.Sprintf("all secrets in the store are encrypted under the key %q; remove %q from server.encryption.keys of all servers", first, rest))
	} else if e.changed > 0 {
		e.say(zap.InfoLevel, fmt.Sprintf("all secrets in the store are encrypted under the key %q", first))
	}
	return nil
}

// retire removes keys under which nothing is encrypted any more, if all replicas encrypt with the first one.
func (s *Store) retire(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return s.db.do(ctx, func(ctx context.Context, q querier) error {
		if _, agreed, err := s.behind(ctx, q); err != nil || !agreed {
			return err
		}
		for _, id := range ids {
			if _, err := q.exec(ctx, `DELETE FROM setting WHERE name = $1`, keySetting+id); err != nil {
				return err
			}
		}
		return nil
	})
}

// encryptAll encrypts all secrets again that are not encrypted under a key. It leaves out damaged ones. n is
// their number.
func (e *encryption) encryptAll(ctx context.Context, id string) (n int, err error) {
	if n, err = e.encryptPageKey(ctx, id); err != nil {
		return n, err
	}
	var after sealedPush
	for {
		list, err := e.s.otherPushes(ctx, id, after)
		if err != nil || len(list) == 0 {
			return n, err
		}
		after = list[len(list)-1]
		done, err := e.s.encryptPushes(ctx, id, list)
		n += done
		if err != nil {
			return n, err
		}
	}
}

// encryptPageKey encrypts the key of page tokens.
func (e *encryption) encryptPageKey(ctx context.Context, id string) (n int, err error) {
	s, name := e.s, []byte(pageKey)
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
		_, err := q.exec(ctx, `UPDATE setting SET value = $3 WHERE name = $1 AND value = $2`, pageKey, sealed, s.keys.sealWith(id, name, plain))
		return err
	})
}

// sealedPush is a stored push configuration.
type sealedPush struct {
	root, scope, id string
	body            []byte
}

// otherPushes returns push configurations after another one that are not encrypted under a key, in order.
func (s *Store) otherPushes(ctx context.Context, key string, after sealedPush) (list []sealedPush, err error) {
	header := sealedHeader(key)
	err = each(ctx, s.db.reader(), func() { list = nil }, func(r *sql.Rows) error {
		var p sealedPush
		err := r.Scan(&p.root, &p.scope, &p.id, &p.body)
		list = append(list, p)
		return err
	}, fmt.Sprintf(`SELECT id, scope, config, body FROM push_config WHERE substr(body, 1, %d) <> $1 AND (id, scope, config) > ($2, $3, $4)
ORDER BY id, scope, config LIMIT %d`, len(header), encryptBatch), header, after.root, after.scope, after.id)
	return list, err
}

// encryptPushes encrypts push configurations again that have not changed meanwhile. n is their number.
func (s *Store) encryptPushes(ctx context.Context, key string, list []sealedPush) (n int, err error) {
	err = s.db.do(ctx, func(ctx context.Context, q querier) error {
		n = 0
		for _, p := range list {
			name := pushName(p.root, p.scope, p.id)
			plain, err := s.keys.open(name, p.body)
			if err != nil {
				continue // reading it reports the damage
			}
			if _, err := q.exec(ctx, `UPDATE push_config SET body = $5 WHERE id = $1 AND scope = $2 AND config = $3 AND body = $4`,
				p.root, p.scope, p.id, p.body, s.keys.sealWith(key, name, plain)); err != nil {
				return err
			}
			n++
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
