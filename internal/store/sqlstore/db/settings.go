package db

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/store"
)

// Names of settings.
const (
	// storedKey is the key that encrypts the secrets of the store unless one is configured.
	storedKey = "push_key"
	// pageKey is the key of page tokens.
	pageKey = "page_token_key"
	// keySetting begins the names of the settings that list the configured keys under which secrets may be
	// encrypted. Each value is the empty text, encrypted with the key.
	keySetting = "encryption_key:"
)

// keysEvery is how often a process looks whether others have begun to encrypt with further keys.
const keysEvery = 5 * time.Second

// Statements of the table setting.
const (
	selectSetting = `SELECT value FROM setting WHERE name = $1`
	insertSetting = `INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	touchSetting  = `UPDATE setting SET value = value WHERE name = $1`
	changeSetting = `UPDATE setting SET value = $3 WHERE name = $1 AND value = $2`
	deleteSetting = `DELETE FROM setting WHERE name = $1`
)

// selectKeys selects the registered keys, and deleteOtherKeys deletes all but one.
var (
	selectKeys      = fmt.Sprintf(`SELECT name, value FROM setting WHERE substr(name, 1, %d) = $1`, len(keySetting))
	deleteOtherKeys = fmt.Sprintf(`DELETE FROM setting WHERE substr(name, 1, %d) = $1 AND name <> $2`, len(keySetting))
)

// setting returns the value of a setting. The error is sql.ErrNoRows if the setting is not stored.
func setting(ctx context.Context, q Querier, name string) (value []byte, err error) {
	err = q.Scan(ctx, []any{&value}, selectSetting, name)
	return value, err
}

// UseEngine returns what to do about a server with an engine of another kind than the one that a database uses.
func UseEngine(used, kind string) string {
	as := "use a later version"
	switch used {
	case engine.StoreEngine:
		as = "remove server.engine.temporal"
	case engine.TemporalEngine:
		as = "set server.engine.temporal and start team-server-temporal"
	}
	return as + ", or stop all servers that use the store and run team-server engine move --to " + kind
}

// secret returns the named key for encryption, which all replicas share. It creates the key if
// needed.
func (d *DB) secret(ctx context.Context, name string) ([]byte, error) {
	key, err := setting(ctx, d.Reader(), name)
	if !errors.Is(err, sql.ErrNoRows) {
		return key, err
	}
	fresh := make([]byte, 32)
	_, _ = rand.Read(fresh) // never fails
	if d.keys != nil && len(d.keys.ids) > 0 {
		fresh = d.keys.seal([]byte(name), fresh)
	}
	if err := d.Run(ctx, insertSetting, name, fresh); err != nil {
		return nil, err
	}
	return setting(ctx, d.Reader(), name)
}

// RegisteredKeys returns the ids of the keys under which secrets may be encrypted, with their test values.
func RegisteredKeys(ctx context.Context, q Querier) (known map[string][]byte, err error) {
	err = Each(ctx, q, func() { known = map[string][]byte{} }, func(r *sql.Rows) error {
		var name string
		var value []byte
		err := r.Scan(&name, &value)
		known[strings.TrimPrefix(name, keySetting)] = value
		return err
	}, selectKeys, keySetting)
	return known, err
}

// check returns an error unless the keyring has all keys of a store, with the right values.
func (r *keyring) check(known map[string][]byte) error {
	for _, id := range slices.Sorted(maps.Keys(known)) {
		_, err := r.open([]byte(keySetting+id), known[id])
		var missing NoKeyError
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
func (d *DB) unlock(ctx context.Context) error {
	stored, err := d.secret(ctx, storedKey)
	if err != nil {
		return err
	}
	if d.keys, err = newKeyring(stored, d.Keys); err != nil || d.Sealed {
		return err
	}
	known, err := RegisteredKeys(ctx, d.Reader())
	if err == nil {
		err = d.keys.check(known)
	}
	if err == nil {
		err = d.register(ctx, known)
	}
	if err != nil {
		return err
	}
	page, err := d.secret(ctx, pageKey)
	if err == nil {
		page, err = d.keys.openPageKey(page)
	}
	if err != nil {
		return fmt.Errorf("read the key of page tokens: %w", err)
	}
	d.Tokens = store.NewSealer(page)
	return nil
}

// openPageKey decrypts the key of page tokens, unless it was written by a process without configured keys.
func (r *keyring) openPageKey(value []byte) ([]byte, error) {
	if _, n := ParseSealed(value); n == 0 {
		return value, nil
	}
	return r.open([]byte(pageKey), value)
}

// register records the first configured key as one under which secrets are encrypted.
func (d *DB) register(ctx context.Context, known map[string][]byte) error {
	if len(d.keys.ids) == 0 || known[d.keys.ids[0]] != nil {
		return nil
	}
	name := keySetting + d.keys.ids[0]
	if err := d.Run(ctx, insertSetting, name, d.keys.seal([]byte(name), nil)); err != nil {
		return err
	}
	known, err := RegisteredKeys(ctx, d.Reader()) // another process may have registered the id with another value
	if err != nil {
		return err
	}
	return d.keys.check(known)
}

// WatchKeys stops the process when others encrypt with a key that it does not have: it must not claim deliveries that it
// cannot make. It runs until ctx ends.
func (d *DB) WatchKeys(ctx context.Context) {
	tick := time.NewTicker(keysEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		known, err := RegisteredKeys(ctx, d.Reader())
		if err != nil {
			continue // Ready reports a store that cannot be read
		}
		if err := d.keys.check(known); err != nil {
			d.Log.Error("server.encryption: " + err.Error())
			_ = d.state().latch(err)
			return
		}
	}
}

// Seal encrypts a secret that is bound to a name.
func (d *DB) Seal(name, plain []byte) []byte { return d.keys.seal(name, plain) }

// Unseal decrypts a secret. The error is a NoKeyError if its key is not configured. Any other error means that the
// secret is damaged, or belongs to another name.
func (d *DB) Unseal(name, sealed []byte) ([]byte, error) { return d.keys.open(name, sealed) }

// FirstKey returns the id of the key that encrypts. The error says that none is configured.
func (d *DB) FirstKey() (id string, err error) {
	if len(d.keys.ids) == 0 {
		return "", errors.New("no key is configured; add one to server.encryption.keys")
	}
	return d.keys.ids[0], nil
}

// ReencryptPageKey encrypts the key of page tokens under the first configured key, unless it is. n is 1 if it was not.
func (d *DB) ReencryptPageKey(ctx context.Context) (n int, err error) {
	sealed, err := d.secret(ctx, pageKey)
	if err != nil || bytes.HasPrefix(sealed, SealedHeader(d.keys.ids[0])) {
		return 0, err
	}
	plain, err := d.keys.openPageKey(sealed)
	if err != nil {
		return 0, fmt.Errorf("read the key of page tokens: %w", err)
	}
	return 1, d.Run(ctx, changeSetting, pageKey, sealed, d.keys.seal([]byte(pageKey), plain))
}

// DropOtherKeys removes all registered keys but the first configured one, under which nothing may be encrypted any more.
func (d *DB) DropOtherKeys(ctx context.Context) error {
	return d.Run(ctx, deleteOtherKeys, keySetting, keySetting+d.keys.ids[0])
}

// DropKey removes a registered key, and the key of page tokens if it is encrypted under that one, which then gets a new value.
func DropKey(ctx context.Context, q Querier, id string) error {
	page, err := setting(ctx, q, pageKey)
	if by, _ := ParseSealed(page); err == nil && by == id {
		_, err = q.Exec(ctx, deleteSetting, pageKey)
	}
	if err == nil || errors.Is(err, sql.ErrNoRows) {
		_, err = q.Exec(ctx, deleteSetting, keySetting+id)
	}
	return err
}

// TakeKeys replaces the keys of d by those of another store, whose secrets are then copied unchanged.
func (d *DB) TakeKeys(ctx context.Context, from *DB) error {
	stored, err := setting(ctx, from.Reader(), storedKey)
	if err != nil {
		return err
	}
	known, err := RegisteredKeys(ctx, from.Reader())
	if err != nil {
		return err
	}
	ring, err := newKeyring(stored, nil)
	if err != nil {
		return err
	}
	old, err := setting(ctx, d.Reader(), storedKey)
	if err != nil {
		return err
	}
	err = d.Do(ctx, func(ctx context.Context, q Querier) error {
		_, err := q.Exec(ctx, changeSetting, storedKey, old, stored)
		for id, value := range known {
			if err == nil {
				_, err = q.Exec(ctx, insertSetting, keySetting+id, value)
			}
		}
		return err
	})
	if err == nil {
		d.keys.stored = ring.stored
	}
	return err
}
