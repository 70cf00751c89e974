package stores_test

import (
	"path/filepath"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/cli/stores"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

// TestForgetSecrets deletes what a lost key has encrypted; then the store opens without it.
func TestForgetSecrets(t *testing.T) {
	url := store.SQLite + filepath.Join(t.TempDir(), "team.db")
	key := secret.Key{ID: "2026-11", Value: secret.New(strings.Repeat("0f", 32))}
	s, err := sqlstore.Open(t.Context(), url, sqlstore.Config{Keys: []secret.Key{key}})
	if err != nil {
		t.Fatal(err)
	}
	m := agent.UserMessage("m", "x")
	task := runs.New{
		Owner: "acme/ann", MessageID: "m", Accepted: &teamv1.Accepted{TaskId: "one", Agent: "a", Owner: "acme/ann", Message: m},
		Push: &a2av1.TaskPushNotificationConfig{Id: "hook", Url: "https://example.com", Token: "canary-token"},
	}
	if _, _, err := s.Create(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	shell := &cli.Shell{Console: console.Console{Out: &out, Talk: &out}}
	for name, tt := range map[string]struct{ url, key, want string }{
		"no key":     {url, "", "needs --store URL and --key ID"},
		"no store":   {"", "2026-11", "needs --store URL and --key ID"},
		"memory":     {store.MemoryURL, "2026-11", "a memory store has no encrypted secrets"},
		"no file":    {store.SQLite + filepath.Join(t.TempDir(), "no.db"), "2026-11", "does not exist; check the path"},
		"another id": {url, "2026-12", `nothing in the store is encrypted under the key "2026-12"; keys of the store: 2026-11`},
	} {
		if err := (&stores.Commands{Console: &shell.Console}).ForgetSecrets(t.Context(), tt.url, tt.key); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	if _, err := sqlstore.Open(t.Context(), url, sqlstore.Config{}); err == nil {
		t.Fatal("opened without the key")
	}
	if err := (&stores.Commands{Console: &shell.Console}).ForgetSecrets(t.Context(), url, "2026-11"); err != nil || out.String() != "deleted 1 webhooks that were encrypted under the key 2026-11\n" {
		t.Fatalf("%q, %v", out.String(), err)
	}
	if s, err = sqlstore.Open(t.Context(), url, sqlstore.Config{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
