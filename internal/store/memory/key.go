package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/store"
)

// apiKeys are the API keys of a Store. The zero value has none.
type apiKeys struct {
	mu       sync.Mutex
	keys     map[string]auth.StoredKey  // by id; guarded by mu
	watchers map[chan struct{}]struct{} // guarded by mu
}

// Keys implements auth.Store.
func (s *Store) Keys(context.Context) ([]auth.StoredKey, error) {
	s.apiKeys.mu.Lock()
	defer s.apiKeys.mu.Unlock()
	list := slices.Collect(maps.Values(s.apiKeys.keys))
	slices.SortFunc(list, func(a, b auth.StoredKey) int { return cmp.Compare(a.Key.GetId(), b.Key.GetId()) })
	for i, k := range list {
		list[i].Key = proto.CloneOf(k.Key)
	}
	return list, nil
}

// PutKey implements auth.Store.
func (s *Store) PutKey(ctx context.Context, k auth.StoredKey) error {
	s.apiKeys.mu.Lock()
	defer s.apiKeys.mu.Unlock()
	if s.apiKeys.keys == nil {
		s.apiKeys.keys = map[string]auth.StoredKey{}
	}
	s.apiKeys.keys[k.Key.GetId()] = auth.StoredKey{Key: proto.CloneOf(k.Key), Hash: slices.Clone(k.Hash)}
	for w := range s.apiKeys.watchers {
		store.Poke(w)
	}
	return s.audited(ctx)
}

// WatchKeys implements auth.Store.
func (s *Store) WatchKeys() (wake <-chan struct{}, stop func()) {
	k, w := &s.apiKeys, make(chan struct{}, 1)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.watchers == nil {
		k.watchers = map[chan struct{}]struct{}{}
	}
	k.watchers[w] = struct{}{}
	return w, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.watchers, w)
	}
}
