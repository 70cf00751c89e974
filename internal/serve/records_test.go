package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/server"
)

// fullStore is a store that takes no audit records until it has space.
type fullStore struct {
	server.Store
	tried chan struct{} // has a value if it refused a record since the last one was read

	mu      sync.Mutex
	space   bool     // guarded by mu
	actions []string // guarded by mu
}

func newFullStore(t *testing.T) *fullStore {
	t.Helper()
	memory, err := server.OpenStore(t.Context(), store.MemoryURL, server.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = memory.Close() })
	return &fullStore{Store: memory, tried: make(chan struct{}, 1)}
}

func (s *fullStore) AppendAudit(ctx context.Context, records ...*teamv1.AuditRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.space {
		select {
		case s.tried <- struct{}{}:
		default:
		}
		return errors.New("the disk is full")
	}
	for _, r := range records {
		s.actions = append(s.actions, r.GetAction())
	}
	return s.Store.AppendAudit(ctx, records...)
}

func (s *fullStore) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.space = true
}

// written returns the actions of the records in the audit log.
func (s *fullStore) written() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.actions)
}

func recordFile(t *testing.T) *config.Config {
	t.Helper()
	file, err := config.Loader{}.Parse("team.yaml", fmt.Appendf(nil, parrot, "one"))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// TestT_49_RecordsAtTheEnd: records that a full store has refused are written when the server stops, if it has space by
// then, also the one that was tried last.
func TestT_49_RecordsAtTheEnd(t *testing.T) {
	s, file := newFullStore(t), recordFile(t)
	q := newRecords(s, zap.NewNop())
	for n := range 3 {
		q.add(t.Context(), fmt.Sprint("record", n), file)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); q.run(ctx) }()
	<-s.tried
	s.free()
	cancel()
	<-ended
	if got, want := s.written(), []string{"record0", "record1", "record2"}; !slices.Equal(got, want) {
		t.Errorf("the audit log has %q, want %q", got, want)
	}
}

// TestT_49_RecordsNeverBlock: with a store that takes no writes, any number of records can be added; the oldest ones and
// the newest one are kept.
func TestT_49_RecordsNeverBlock(t *testing.T) {
	s, file := newFullStore(t), recordFile(t)
	q := newRecords(s, zap.NewNop())
	for n := range 3 * maxRecords {
		q.add(t.Context(), fmt.Sprint("record", n), file)
	}
	s.free()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q.run(ctx)
	got := s.written()
	if len(got) != maxRecords || got[0] != "record0" || got[maxRecords-2] != fmt.Sprint("record", maxRecords-2) || got[maxRecords-1] != fmt.Sprint("record", 3*maxRecords-1) {
		t.Errorf("the audit log has %d records: %q", len(got), got)
	}
}
