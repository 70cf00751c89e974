package memory_test

import (
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/store/memory"
)

// TestT_49_ChainsOfWhichRecordsWereDropped: the memory store drops the oldest of many records, and what is left
// can be verified. A record that is appended again has no effect.
func TestT_49_ChainsOfWhichRecordsWereDropped(t *testing.T) {
	s := memory.New(memory.Config{})
	const n = 100_001
	for i := range n {
		r := audit.New(t.Context(), time.Unix(int64(i), 0), "denied", "x")
		r.Account = "acme"
		for range 2 {
			if err := s.AppendAudit(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	first, err := s.Audit(t.Context(), "acme", 0, 1)
	if err != nil || len(first) != 1 || first[0].Seq == 1 {
		t.Fatalf("the first record is %v, %v", first, err)
	}
	if last, err := audit.Verify(t.Context(), s, "acme", 0, ""); err != nil || last.Seq != n {
		t.Errorf("Verify = %d, %v, want %d", last.Seq, err, n)
	}
}
