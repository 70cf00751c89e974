package auth

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
)

// StoredKey is an API key that was made by the API.
type StoredKey struct {
	Key *teamv1.Key
	// Hash is the SHA-256 hash of the whole key.
	Hash []byte
}

// Store stores the API keys that were made by the API, and the rights of owners of tokens and certificates. Stores
// implement it. It is safe for concurrent use, by several processes if the store is.
type Store interface {
	// Keys returns all keys, ordered by id. The caller may modify them.
	Keys(ctx context.Context) ([]StoredKey, error)
	// PutKey stores a key, in place of the one with its id.
	PutKey(ctx context.Context, k StoredKey) error
	// WatchKeys returns a channel that receives a value when keys may have changed. Values may be
	// lost, so callers also poll. The caller must call stop.
	WatchKeys() (wake <-chan struct{}, stop func())
	// PutRights stores rights, each in place of one of the same owner and key, unless that is of the same issuer and
	// lasts longer.
	PutRights(ctx context.Context, list []Right) error
	// Rights returns the rights of an owner, in any order. The store forgets them when they ended RightsKept ago and
	// the owner has no unfinished tasks.
	Rights(ctx context.Context, owner string) ([]Right, error)
	// EndedRights returns the owners with unfinished tasks who have rights of which none lasts at a time if only
	// the sources in accepted are accepted, each with the latest time until which one would have lasted. The
	// caller may modify the map.
	EndedRights(ctx context.Context, now time.Time, accepted []Source) (map[string]time.Time, error)
}

// pollInterval is how often the keys are read, in case a notification was lost.
const pollInterval = 5 * time.Second

// Refresh reads the keys of the store. When it returns nil, those that were stored before it was called
// are in use. Server may be nil.
func (s *Server) Refresh(ctx context.Context) error {
	if s == nil || s.c.Store == nil {
		return nil
	}
	select { // one at a time, so that older keys do not replace newer ones
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	began := time.Now()
	list, err := s.c.Store.Keys(ctx)
	if err != nil {
		return fmt.Errorf("reading the API keys: %w", err)
	}
	stored := make(map[hash]entry, len(list))
	for _, k := range list {
		if len(k.Hash) == len(hash{}) {
			stored[hash(k.Hash)] = entry{id: k.Key.GetId(), caller: callerOf(k.Key), revoked: k.Key.GetRevoked() != nil}
		}
	}
	s.mu.Lock()
	s.stored = stored
	s.now.Load().keys.set(stored)
	s.mu.Unlock()
	s.read.Store(began.UnixMilli())
	return nil
}

// callerOf returns the caller that a key stands for.
func callerOf(k *teamv1.Key) identity.Caller {
	who := identity.Caller{Account: k.GetAccount(), Principal: k.GetName(), Roles: k.GetRoles(), Permissions: identity.PermissionsOf(k.GetPermissions())}
	if k.GetExpires() != nil {
		who.Expires = k.GetExpires().AsTime()
	}
	return who
}

// Serve reads the keys of issuers, and those that other replicas have changed, and stores rights, until ctx ends.
// Server may be nil.
func (s *Server) Serve(ctx context.Context) {
	if s == nil {
		return
	}
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { s.fetchKeys(ctx) })
	work.Go(func() { s.rights.run(ctx) })
	if s.c.Store != nil {
		s.follow(ctx)
	}
}

// fetchKeys fetches the keys of the issuers that are accepted until ctx ends.
func (s *Server) fetchKeys(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	running := map[*issuerKeys]context.CancelFunc{}
	for {
		accepted := map[*issuerKeys]bool{}
		if t := s.now.Load().tokens; t != nil {
			for _, i := range t.issuers {
				accepted[i.keys] = true
			}
		}
		for k, stop := range running {
			if !accepted[k] {
				stop()
				delete(running, k)
			}
		}
		for k := range accepted {
			if running[k] == nil {
				fetching, stop := context.WithCancel(ctx)
				running[k] = stop
				work.Go(func() { k.run(fetching) })
			}
		}
		select {
		case <-s.reloaded:
		case <-ctx.Done():
			for _, stop := range running {
				stop()
			}
			return
		}
	}
}

// follow reads keys that other replicas have changed until ctx ends.
func (s *Server) follow(ctx context.Context) {
	wake, stop := s.c.Store.WatchKeys()
	defer stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	failing := false
	for {
		err := s.Refresh(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			s.c.Log.Warn("API keys cannot be read; those that are known are used", zap.Error(err))
		}
		failing = err != nil
		select {
		case <-wake:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
