package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/catalog"
)

// audits tests the contract of audit.Store.
func audits(t *testing.T, open Open) {
	record := func(c *Clock, account, action string) *teamv1.AuditRecord {
		r := audit.New(context.Background(), c.Now(), action, "x")
		r.Account = account
		return r
	}
	t.Run("T-49 a record is appended with its change, once", func(t *testing.T) {
		c := NewClock()
		s := open(t, c.Now)
		r := record(c, "acme", "catalog.create")
		ctx := audit.With(t.Context(), r)
		version, err := s.ChangeCatalog(ctx, 0, catalog.Change{Put: []catalog.Entry{entry(c, "a", "one")}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.ChangeCatalog(audit.With(t.Context(), record(c, "acme", "refused")), 7, catalog.Change{}); err == nil {
			t.Error("a change at another version was made")
		}
		if err := s.AppendAudit(t.Context(), record(c, "other", "denied"), record(c, "acme", "halt")); err != nil {
			t.Fatal(err)
		}
		entries, err := s.Audit(t.Context(), "acme", 0, 10)
		if err != nil || len(entries) != 2 || version != 1 {
			t.Fatalf("%d records at version %d, %v", len(entries), version, err)
		}
		for i, action := range []string{"catalog.create", "halt"} {
			if r, err := entries[i].Record(); err != nil || r.GetAction() != action || r.GetSeq() != int64(i+1) {
				t.Errorf("record %d: %v, %v", i, r, err)
			}
		}
		if accounts, err := s.AuditAccounts(t.Context()); err != nil || fmt.Sprint(accounts) != "[acme other]" {
			t.Errorf("accounts %v, %v", accounts, err)
		}
		if page, err := s.Audit(t.Context(), "acme", 1, 10); err != nil || len(page) != 1 || page[0].Seq != 2 {
			t.Errorf("after the first: %v, %v", page, err)
		}
	})
	t.Run("T-49 the chain is one under concurrent changes", func(t *testing.T) {
		c := NewClock()
		s := open(t, c.Now)
		const each, writers = 25, 8
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for range each {
					if err := s.AppendAudit(t.Context(), record(c, "acme", "halt")); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		head, err := audit.Verify(t.Context(), s, "acme", 0, "")
		if err != nil || head.Seq != each*writers {
			t.Errorf("%d records, %v", head.Seq, err)
		}
	})
}
