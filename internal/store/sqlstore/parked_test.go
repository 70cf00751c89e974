package sqlstore_test

import (
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/pkg/agent"
)

// TestS_49_AParkedRun is not due, shows why, and is due again when an input comes for
// it; also with a record whose sequence does not fit, which no append gets past.
func TestS_49_AParkedRun(t *testing.T) {
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			s := open(t, url(t), sqlstore.Config{})
			create(t, s, "one")
			s.Exec(t.Context(), t, `UPDATE run SET seq = 77 WHERE id = 'one'`)
			c := claim(t, s, "r")
			if err := s.Suspend(t.Context(), c, "because"); err != nil {
				t.Fatal(err)
			}
			if claims, next, err := s.Claim(t.Context(), "r", engine.NewRoom(10, nil)); err != nil || len(claims) > 0 {
				t.Fatalf("Claim = %v, %v, %v", claims, next, err)
			}
			task, _, err := s.Task(t.Context(), key("one"))
			if err != nil || agent.Text(task.GetStatus().GetMessage()) != "because" || len(project.RunOf(task.GetMetadata()).GetWarnings()) != 1 {
				t.Errorf("Task = %v, %v", task, err)
			}
			page, err := s.List(t.Context(), me, runs.Filter{})
			if err != nil || len(page.Tasks) != 1 || agent.Text(page.Tasks[0].GetStatus().GetMessage()) != "because" {
				t.Errorf("List = %v, %v", page, err)
			}
			if _, _, err := s.Put(t.Context(), key("one"), followUp("f"), []byte("d"), nil); err != nil {
				t.Fatal(err)
			}
			if c := claim(t, s, "r"); c.Epoch != 2 {
				t.Errorf("claimed under epoch %d", c.Epoch)
			}
			if task, _, err := s.Task(t.Context(), key("one")); err != nil || strings.Contains(task.String(), "because") {
				t.Errorf("while it is tried again: %v, %v", task, err)
			}
		})
	}
}

// TestSQLite_S_49_AParkedRunIsTriedAgainAfterARestart: the cause may be gone by then.
func TestSQLite_S_49_AParkedRunIsTriedAgainAfterARestart(t *testing.T) {
	url := sqliteURL(t)
	s, err := sqlstore.Open(t.Context(), url, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	create(t, s, "one")
	if err := s.Suspend(t.Context(), claim(t, s, "r"), "because"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	claim(t, open(t, url, sqlstore.Config{}), "r")
}
