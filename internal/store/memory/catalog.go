package memory

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/agentteams/team-server/internal/catalog"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// entries are the catalog of a Store. The zero value is empty.
type entries struct {
	mu       sync.Mutex
	version  int64                      // guarded by mu
	byID     map[string]catalog.Entry   // guarded by mu
	watchers map[chan struct{}]struct{} // guarded by mu
}

// Catalog implements catalog.Store.
func (s *Store) Catalog(context.Context) (catalog.Snapshot, error) {
	c := &s.catalog
	c.mu.Lock()
	defer c.mu.Unlock()
	snap := catalog.Snapshot{Version: c.version}
	for _, e := range c.byID {
		e.Data = slices.Clone(e.Data)
		snap.Entries = append(snap.Entries, e)
	}
	slices.SortFunc(snap.Entries, func(a, b catalog.Entry) int { return cmp.Compare(a.ID, b.ID) })
	return snap, nil
}

// CatalogVersion implements catalog.Store.
func (s *Store) CatalogVersion(context.Context) (int64, error) {
	s.catalog.mu.Lock()
	defer s.catalog.mu.Unlock()
	return s.catalog.version, nil
}

// has reports whether an entry exists.
func (c *entries) has(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.byID[id]
	return ok
}

// ChangeCatalog implements catalog.Store.
func (s *Store) ChangeCatalog(ctx context.Context, version int64, change catalog.Change) (int64, error) {
	c := &s.catalog
	s.mu.RLock() // no collaboration can begin in the meantime
	defer s.mu.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version != version {
		return 0, catalog.ErrChanged
	}
	for _, id := range change.Delete {
		if len(s.busy[agent.KeyOf(c.byID[id].Account, id)]) > 0 {
			return 0, a2a.ErrBusy
		}
	}
	c.version++
	for _, id := range change.Delete {
		delete(c.byID, id)
	}
	if c.byID == nil {
		c.byID = map[string]catalog.Entry{}
	}
	for _, e := range change.Put {
		if old, ok := c.byID[e.ID]; ok {
			e.Created = old.Created
		}
		e.Data, e.Version = slices.Clone(e.Data), c.version
		c.byID[e.ID] = e
	}
	for w := range c.watchers {
		store.Poke(w)
	}
	return c.version, s.audited(ctx)
}

// WatchCatalog implements catalog.Store.
func (s *Store) WatchCatalog() (wake <-chan struct{}, stop func()) {
	c, w := &s.catalog, make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers == nil {
		c.watchers = map[chan struct{}]struct{}{}
	}
	c.watchers[w] = struct{}{}
	return w, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, w)
	}
}
