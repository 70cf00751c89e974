package upgrade

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/pkg/secret"
)

// due makes all webhooks of a store due.
const due = `UPDATE push_config SET due = 0, held = 0`

// webhooks returns the tokens of the webhooks of a store, by task and id.
func webhooks(t *testing.T, s *sqlstore.Store) map[string]string {
	t.Helper()
	claims, _, err := s.ClaimPushes(t.Context(), 1000, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[string]string{}
	for _, c := range claims {
		tokens[c.Task.ID+" "+c.Config.GetId()] = c.Config.GetToken()
	}
	return tokens
}

// TestP19_EncryptionOfStoresOfThePreviousVersion: webhooks that the previous version has stored are encrypted
// under the key that is configured, are the same then, and are not there without it.
func TestP19_EncryptionOfStoresOfThePreviousVersion(t *testing.T) {
	one := secret.Key{ID: "one", Value: secret.New(strings.Repeat("0f", 32))}
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			at := k.load(t, k.file)
			k.change(t, at.URL, still)
			k.change(t, at.URL, due)
			open := func(c sqlstore.Config) *sqlstore.Store {
				c.Lease = time.Second
				return must[*sqlstore.Store](t)(sqlstore.Open(t.Context(), at.URL, c))
			}
			closed := func(s *sqlstore.Store) {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				k.change(t, at.URL, due)
			}
			s := open(sqlstore.Config{})
			before := webhooks(t, s)
			closed(s)
			if len(before) == 0 || !slices.Contains(slices.Collect(maps.Values(before)), "token") {
				t.Fatalf("the store has the webhooks %v", before)
			}
			s = open(sqlstore.Config{Keys: []secret.Key{one}})
			if n, err := s.Reencrypt(t.Context()); err != nil || n < len(before) {
				t.Errorf("%d secrets are encrypted again, %v", n, err)
			}
			if got := webhooks(t, s); !maps.Equal(got, before) {
				t.Errorf("webhooks %v, before %v", got, before)
			}
			closed(s)
			s = open(sqlstore.Config{Keys: []secret.Key{one}})
			if got := webhooks(t, s); !maps.Equal(got, before) {
				t.Errorf("webhooks %v after a restart, before %v", got, before)
			}
			closed(s)
			if s, err := sqlstore.Open(t.Context(), at.URL, sqlstore.Config{}); err == nil {
				_ = s.Close()
				t.Error("opened without the key")
			}
			s = open(sqlstore.Config{Sealed: true})
			if got := webhooks(t, s); len(got) != 0 {
				t.Errorf("webhooks without the key: %v", got)
			}
			closed(s)
		})
	}
}
