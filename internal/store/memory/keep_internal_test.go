package memory

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
)

// TestCreate_SweepFails: a task is created also if what is old cannot be deleted, which is logged; and a chain that
// cannot be trimmed does not keep the records of others.
func TestCreate_SweepFails(t *testing.T) {
	core, logged := observer.New(zap.WarnLevel)
	now := time.Unix(1_700_000_000, 0)
	s := New(Config{Clock: func() time.Time { return now }, Keep: store.Keep{Audit: time.Hour}, Log: zap.New(core)})
	for range 3 {
		for _, account := range []string{"acme", "beta", "zeta"} {
			r := audit.New(t.Context(), now, "halt", "x")
			r.Account = account
			if err := s.AppendAudit(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.audit.chains["beta"].entries[0].Body = []byte("damaged")
	now = now.Add(48 * time.Hour)
	n := a2a.New{Owner: "acme/ann", MessageID: "m", Accepted: &teamv1.Accepted{TaskId: "t1", Agent: "desk"}}
	if root, _, err := s.Create(t.Context(), n); root != "t1" || err != nil {
		t.Errorf("created %q, %v", root, err)
	}
	if logged.Len() != 1 {
		t.Errorf("logged: %v", logged.All())
	}
	for account, want := range map[string]int{"acme": 1, "beta": 3, "zeta": 1} {
		if got := len(s.audit.chains[account].entries); got != want {
			t.Errorf("%s has %d records, want %d", account, got, want)
		}
	}
}
