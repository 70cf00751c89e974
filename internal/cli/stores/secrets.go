package stores

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"go.uber.org/zap/zapcore"

	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// Reencrypt encrypts all secrets of a store again under the first key of a configuration file, and prints their number. url
// is the store, "" that of the file.
func (c *Commands) Reencrypt(ctx context.Context, path, url string) (err error) {
	if err := CheckURL("store", url); err != nil {
		return err
	}
	def, err := config.Loader{}.Load(path)
	if err != nil {
		return err
	}
	switch url = cmp.Or(url, def.StoreURL(), store.MemoryURL); {
	case url == store.MemoryURL:
		return console.Usagef("a memory store has no encrypted secrets; set server.store in the file, or --store")
	case len(def.EncryptionKeys()) == 0:
		return console.Usagef("%s has no server.encryption.keys, so there is no key to encrypt with", path)
	}
	if err := mustExist(url); err != nil {
		return err
	}
	opened, err := sqlstore.Open(ctx, url, sqlstore.Config{Keys: def.EncryptionKeys(), KeepOld: true, Log: c.Console.Log(zapcore.ErrorLevel)})
	if err != nil {
		return ofStore(url, err)
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	secrets, err := opened.Reencrypt(ctx)
	if err != nil {
		return ofStore(url, err)
	}
	key := def.EncryptionKeys()[0].ID
	if c.Console.JSON {
		return json.NewEncoder(c.Console.Out).Encode(struct {
			Store   string `json:"store"`
			Key     string `json:"key"`
			Secrets int    `json:"secrets"`
		}{store.Redacted(url), key, secrets})
	}
	_, err = fmt.Fprintf(c.Console.Out, "encrypted %d secrets again; all are under the key %s, and the others can be removed from server.encryption.keys\n", secrets, key)
	return err
}

// ForgetSecrets deletes from a store what is encrypted under a key that is lost, and prints the number of
// webhooks. No server may use the store meanwhile.
func (c *Commands) ForgetSecrets(ctx context.Context, url, key string) error {
	if url == "" || key == "" {
		return console.Usagef("forget-secrets needs --store URL and --key ID, for example --store sqlite:team.db --key 2026-11")
	}
	if url == store.MemoryURL {
		return console.Usagef("--store memory: a memory store has no encrypted secrets; use sqlite:FILE or postgres://USER@HOST/DATABASE")
	}
	if err := CheckURL("store", url); err != nil {
		return err
	}
	if err := mustExist(url); err != nil {
		return err
	}
	webhooks, err := sqlstore.ForgetSecrets(ctx, url, key, c.Console.Log(zapcore.ErrorLevel))
	if err != nil {
		return ofStore(url, err)
	}
	if c.Console.JSON {
		return json.NewEncoder(c.Console.Out).Encode(struct {
			Store    string `json:"store"`
			Key      string `json:"key"`
			Webhooks int64  `json:"webhooks"`
		}{store.Redacted(url), key, webhooks})
	}
	_, err = fmt.Fprintf(c.Console.Out, "deleted %d webhooks that were encrypted under the key %s\n", webhooks, key)
	return err
}

// ofStore returns an error about a store, without passwords.
func ofStore(url string, err error) error {
	return fmt.Errorf("%s: %s", store.Redacted(url), store.Conceal(err.Error(), url))
}

// mustExist returns an error if a SQLite store does not exist, because opening it would make one.
func mustExist(url string) error {
	if file, ok := strings.CutPrefix(url, store.SQLite); ok {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the file %s does not exist; check the path", file)
		}
	}
	return nil
}
