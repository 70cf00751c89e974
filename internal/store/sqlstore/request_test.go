package sqlstore_test

import (
	"errors"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/pkg/agent"
)

// repeated is a message m that begins a task of an agent.
func repeated(id, of string) runs.New {
	return runs.New{
		Owner: "acme/ann", MessageID: "m", Digest: []byte("digest"),
		Accepted: &teamv1.Accepted{TaskId: id, Agent: of, Owner: "acme/ann", Message: agent.UserMessage("m", "do it")},
	}
}

// TestA_15_Deduplicate: a store remembers message ids for the time it is told.
func TestA_15_Deduplicate(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s, err := sqlstore.Open(t.Context(), "sqlite:"+t.TempDir()+"/team.db", sqlstore.Config{
		Deduplicate: 48 * time.Hour, Retention: 1000 * time.Hour, Clock: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, _, err := s.Create(t.Context(), repeated("one", "a")); err != nil {
		t.Fatal(err)
	}
	now = now.Add(47 * time.Hour)
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if root, err := s.Sent(t.Context(), "acme/ann", "a", "m"); root != "one" || err != nil {
		t.Errorf("Sent after 47 hours = %q, %v", root, err)
	}
	now = now.Add(time.Hour)
	if _, err := s.Sent(t.Context(), "acme/ann", "a", "m"); !errors.Is(err, runs.ErrNotFound) {
		t.Errorf("Sent after 48 hours: %v, want ErrNotFound", err)
	}
}
