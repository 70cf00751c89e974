package auth

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// rightStore is a store of rights that fails while err is not nil.
type rightStore struct {
	Store

	mu     sync.Mutex
	err    error            // guarded by mu
	writes int              // guarded by mu
	rights map[string]Right // by owner; guarded by mu
}

func (s *rightStore) PutRights(_ context.Context, list []Right) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if s.err != nil {
		return s.err
	}
	for _, r := range list {
		s.rights[r.Owner] = r
	}
	return nil
}

func (s *rightStore) Rights(_ context.Context, owner string) ([]Right, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, has := s.rights[owner]; has {
		return []Right{r}, nil
	}
	return nil, nil
}

func (s *rightStore) fails(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *rightStore) counts() (writes, owners int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes, len(s.rights)
}

// noting returns rights that run until the end of the test.
func noting(t *testing.T) (*rights, *rightStore) {
	t.Helper()
	store := &rightStore{rights: map[string]Right{}}
	r := newRights(store, zap.NewNop())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return r, store
}

// TestT_11_RightsAreWrittenOnce: a right is written when a token extends it, not for each call. It is known at once,
// also while the store fails, and written when the store works again.
func TestT_11_RightsAreWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, store := noting(t)
		source := Source{"https://id.example", "one"}
		ann := func(after time.Duration) Right { return Right{"acme/corp:ann", source, time.Now().Add(after)} }
		first := ann(time.Hour)
		for range 100 {
			r.note(first)
			synctest.Wait()
		}
		r.note(ann(time.Minute))
		synctest.Wait()
		if writes, _ := store.counts(); writes != 1 {
			t.Errorf("%d writes for one token and one that ends earlier", writes)
		}
		store.fails(errors.New("the disk is full"))
		r.note(ann(2 * time.Hour))
		synctest.Wait()
		time.Sleep(time.Hour)
		if lasts, err := r.lasts(t.Context(), first.Owner, time.Now(), []Source{source}); !lasts || err != nil {
			t.Errorf("while the store fails: %v, %v", lasts, err)
		}
		store.fails(nil)
		time.Sleep(pollInterval)
		synctest.Wait()
		if got := store.rights[first.Owner]; !got.Until.After(first.Until) {
			t.Errorf("not written when the store works again: %v", got)
		}
		if len(r.unwritten) > 0 {
			t.Errorf("%d are still to be written", len(r.unwritten))
		}
	})
}

// TestT_11_RightsAreWrittenAtTheEnd: a right that was noted just before the server stops is written.
func TestT_11_RightsAreWrittenAtTheEnd(t *testing.T) {
	store := &rightStore{rights: map[string]Right{}}
	r := newRights(store, zap.NewNop())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.note(Right{"acme/corp:ann", Source{"https://id.example", "one"}, time.Now().Add(time.Hour)})
	r.run(ctx)
	if _, owners := store.counts(); owners != 1 {
		t.Errorf("%d owners are stored", owners)
	}
}

// TestMemoryOfRightsIsBounded: however many owners show tokens, what is kept of them has a bound, also while the store
// fails. All are stored when it works.
func TestMemoryOfRightsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, store := noting(t)
		const owners = 100_000
		show := func() {
			for i := range owners {
				r.note(Right{"acme/corp:" + strconv.Itoa(i), Source{"https://id.example", "one"}, time.Now().Add(time.Hour)})
				if i%1000 == 0 {
					synctest.Wait()
				}
			}
		}
		store.fails(errors.New("the disk is full"))
		show()
		if len(r.unwritten) > maxUnwritten || len(r.known) > maxUnwritten {
			t.Errorf("while the store fails, %d owners are kept, and %d are known", len(r.unwritten), len(r.known))
		}
		store.fails(nil)
		time.Sleep(pollInterval)
		show()
		synctest.Wait()
		if _, stored := store.counts(); stored != owners || len(r.unwritten) > 0 {
			t.Errorf("%d owners are stored, and %d are to be stored", stored, len(r.unwritten))
		}
		for i := range maxStored {
			r.known[uint64(i)] = 0
		}
		r.note(Right{"acme/corp:other", Source{"https://id.example", "one"}, time.Now().Add(time.Hour)})
		synctest.Wait()
		if len(r.known) > maxStored {
			t.Errorf("%d are known", len(r.known))
		}
	})
}
