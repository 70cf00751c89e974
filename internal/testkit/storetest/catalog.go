package storetest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentteams/team-server/internal/catalog"
)

func entry(c *Clock, id, data string) catalog.Entry {
	return catalog.Entry{ID: id, Data: []byte(data), Created: c.Now(), Changed: c.Now(), Account: "acme", ChangedBy: "acme/ann"}
}

// catalogs tests the contract of catalog.Store.
func catalogs(t *testing.T, open Open) {
	c := NewClock()
	t.Run("R-003-23 what is put is there, sorted, and what is deleted is not", func(t *testing.T) {
		s := open(t, c.Now)
		first, err := s.Catalog(t.Context())
		if err != nil || first.Version != 0 || len(first.Entries) != 0 {
			t.Fatalf("an empty one: %+v, %v", first, err)
		}
		made := c.Now()
		v, err := s.ChangeCatalog(t.Context(), 0, catalog.Change{Put: []catalog.Entry{entry(c, "b", "two"), entry(c, "a", "one")}})
		if err != nil {
			t.Fatal(err)
		}
		c.Move(time.Second)
		v2, err := s.ChangeCatalog(t.Context(), v, catalog.Change{Put: []catalog.Entry{entry(c, "a", "other"), entry(c, "c", "three")}, Delete: []string{"b", "none"}})
		if err != nil || v2 <= v {
			t.Fatalf("version %d behind %d: %v", v2, v, err)
		}
		if v, err := s.CatalogVersion(t.Context()); err != nil || v != v2 {
			t.Errorf("version %d, want %d: %v", v, v2, err)
		}
		got, err := s.Catalog(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := catalog.Snapshot{Version: v2, Entries: []catalog.Entry{
			{ID: "a", Data: []byte("other"), Version: v2, Created: made, Changed: c.Now(), Account: "acme", ChangedBy: "acme/ann"},
			{ID: "c", Data: []byte("three"), Version: v2, Created: c.Now(), Changed: c.Now(), Account: "acme", ChangedBy: "acme/ann"},
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("R-003-23 a change of what has changed is refused and does nothing", func(t *testing.T) {
		s := open(t, c.Now)
		if _, err := s.ChangeCatalog(t.Context(), 0, catalog.Change{Put: []catalog.Entry{entry(c, "a", "one")}}); err != nil {
			t.Fatal(err)
		}
		for _, version := range []int64{0, 7} {
			if _, err := s.ChangeCatalog(t.Context(), version, catalog.Change{Put: []catalog.Entry{entry(c, "b", "two")}, Delete: []string{"a"}}); !errors.Is(err, catalog.ErrChanged) {
				t.Errorf("at %d: %v", version, err)
			}
		}
		if got, err := s.Catalog(t.Context()); err != nil || len(got.Entries) != 1 || got.Version != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("R-003-23 of changes at the same time one comes about", func(t *testing.T) {
		s := open(t, c.Now)
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for range 20 {
			wg.Go(func() {
				_, err := s.ChangeCatalog(t.Context(), 0, catalog.Change{Put: []catalog.Entry{entry(c, "a", "one")}})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won++
				case !errors.Is(err, catalog.ErrChanged):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won != 1 {
			t.Errorf("%d came about", won)
		}
	})
	t.Run("R-003-23 who watches is told", func(t *testing.T) {
		s := open(t, c.Now)
		wake, stop := s.WatchCatalog()
		if _, err := s.ChangeCatalog(t.Context(), 0, catalog.Change{Put: []catalog.Entry{entry(c, "a", "one")}}); err != nil {
			t.Fatal(err)
		}
		<-wake
		stop()
	})
}
