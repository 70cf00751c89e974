package manage

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/agent"
)

// slow is a catalog that is asked for its version, which takes a while.
type slow struct {
	*sqlstore.Store
	asked int
	err   error
}

func (s *slow) CatalogVersion(ctx context.Context) (int64, error) {
	s.asked++
	time.Sleep(3 * time.Millisecond)
	if s.err != nil {
		return 0, s.err
	}
	return s.Store.CatalogVersion(ctx)
}

// TestR_003_17_LooksAreShared: requests for unknown ids during a sync share the next sync, and
// the rate of syncs is limited however many requests there are.
func TestR_003_17_LooksAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Store: memstore.Open(t)}
		m, err := New(Config{Store: s})
		if err != nil {
			t.Fatal(err)
		}
		look := func(n int) {
			errs := make(chan error, n)
			for range n {
				go func() { errs <- m.Sync(t.Context()) }()
			}
			for range n {
				if err := <-errs; !errors.Is(err, s.err) {
					t.Error(err)
				}
			}
		}
		go look(1)
		synctest.Wait() // it is looking: what it finds may be too old for the others
		look(100)
		if s.asked != 2 {
			t.Errorf("%d looks, want 2", s.asked)
		}
		start := time.Now()
		for range 100 {
			look(1)
		}
		if took := time.Since(start); took < 99*syncGap {
			t.Errorf("100 looks in %s", took)
		}
		s.err = errors.New("down")
		look(1)
		s.asked = 0
		if look(3); s.asked != 3 { // what failed is no answer for others
			t.Errorf("%d looks, want 3", s.asked)
		}
		if err := m.Sync(t.Context()); agent.AsError(err).Reason != agent.ReasonStoreUnavailable {
			t.Error(err)
		}
	})
}
