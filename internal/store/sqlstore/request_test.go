package sqlstore_test

import (
	"errors"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// repeated is a message m that begins a task of an agent.
func repeated(id, of string) a2a.New {
	return a2a.New{
		Owner: "acme/ann", MessageID: "m", Digest: []byte("digest"),
		Accepted: &teamv1.Accepted{TaskId: id, Agent: of, Owner: "acme/ann", Message: agent.UserMessage("m", "do it")},
	}
}

// TestA_15_MessagesBeforeTheSchemaKnewAgents: a message that the previous version put on
// record is a repeat for its own agent, and not for another one.
func TestA_15_MessagesBeforeTheSchemaKnewAgents(t *testing.T) {
	for name, url := range map[string]string{"sqlite": "sqlite:" + t.TempDir() + "/team.db", "postgres": pgtest.URL(t)} {
		t.Run(name, func(t *testing.T) {
			open := func() *sqlstore.Store {
				s, err := sqlstore.Open(t.Context(), url, sqlstore.Config{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				return s
			}
			s := open()
			if _, _, err := s.Create(t.Context(), repeated("one", "a")); err != nil {
				t.Fatal(err)
			}
			s.Downgrade(t.Context(), t, 8)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open()
			if root, existed, err := s.Create(t.Context(), repeated("two", "a")); root != "one" || !existed || err != nil {
				t.Errorf("Create = %q, %v, %v, want the task of the first message", root, existed, err)
			}
			if root, existed, err := s.Create(t.Context(), repeated("three", "b")); root != "three" || existed || err != nil {
				t.Errorf("Create for another agent = %q, %v, %v, want a new task", root, existed, err)
			}
		})
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
	if _, err := s.Sent(t.Context(), "acme/ann", "a", "m"); !errors.Is(err, a2a.ErrNotFound) {
		t.Errorf("Sent after 48 hours: %v, want ErrNotFound", err)
	}
}
