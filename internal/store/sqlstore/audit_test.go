package sqlstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/storetest"
)

// TestT_49_KeepsBroken: a chain that was changed keeps all of its records, which are the proof, and an error is logged;
// the records of other accounts are deleted all the same.
func TestT_49_KeepsBroken(t *testing.T) {
	const day, n = 24 * time.Hour, 5
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			core, logged := observer.New(zap.ErrorLevel)
			c := storetest.NewClock()
			s := open(t, url(t), sqlstore.Config{Clock: c.Now, Log: zap.New(core), Keep: store.Keep{Audit: 10 * day}})
			for i := range n {
				for _, account := range []string{"acme", "beta", "zeta"} {
					r := audit.New(t.Context(), c.Now(), "halt", fmt.Sprint(i))
					r.Account = account
					if err := s.AppendAudit(t.Context(), r); err != nil {
						t.Fatal(err)
					}
				}
			}
			s.Exec(t.Context(), t, `UPDATE audit SET body = (SELECT body FROM audit WHERE account = 'acme' AND seq = 3) WHERE account = 'acme' AND seq = 2`)
			s.Exec(t.Context(), t, `DELETE FROM audit WHERE account = 'beta' AND seq = 1`)
			c.Move(12 * day)
			if err := s.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			for account, want := range map[string]int{"acme": n, "beta": n - 1, "zeta": 1} { // the last one
				entries, err := s.Audit(t.Context(), account, 0, 10)
				if err != nil || len(entries) != want {
					t.Errorf("%s has %d records, %v, want %d", account, len(entries), err, want)
				}
				if _, err := audit.Verify(t.Context(), s, account, 0, ""); errors.Is(err, audit.ErrBroken) != (account != "zeta") {
					t.Errorf("%s: %v", account, err)
				}
			}
			if logged.Len() != 2 {
				t.Errorf("logged: %v", logged.All())
			}
		})
	}
}
