package auth

import (
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Right says that an owner may call until a time, because a token or certificate of it was accepted.
type Right struct {
	Owner string
	// Source has signed the token or certificate.
	Source Source
	// Until is when the token or certificate expires, with the leeway of the issuer, in whole seconds.
	Until time.Time
}

// Source is what signs tokens or certificates.
type Source struct {
	// Issuer is the URL of the issuer of tokens. For certificates it is what certificatesOf returns.
	Issuer string
	// Key is the thumbprint of the key of the issuer, or of the certificate of the authority. Among sources that
	// are accepted, "" stands for every key of the issuer.
	Key string
}

// certificatesOf returns the Issuer of the sources of certificates with a subject alternative name, as namesOf
// returns it: such certificates are accepted only while a client with that name is configured. It is no URL.
func certificatesOf(name string) string { return "certificate " + name }

// Lasts reports whether a right lasts at a time, if only sources in accepted are accepted.
func (r Right) Lasts(now time.Time, accepted []Source) bool {
	return now.Before(r.Until) && slices.ContainsFunc(accepted, func(s Source) bool {
		return s.Issuer == r.Source.Issuer && (s.Key == "" || s.Key == r.Source.Key)
	})
}

// RightsKept is how long a right is stored after its end, if its owner has no unfinished tasks. Calls that
// began before the end may begin tasks for a while.
const RightsKept = 10 * time.Minute

// Limits of the memory of rights.
const (
	// maxStored is the number of rights that are known to be stored.
	maxStored = 1 << 18
	// maxUnwritten is the number of owners with rights that are not stored yet.
	maxUnwritten = 10_000
	// writeBatch is the number of rights that are stored at the same time.
	writeBatch = 500
)

// rights stores the rights of owners of tokens and certificates, so that all replicas know them, also after a
// restart. Notes do no I/O, because Authenticate does none.
type rights struct {
	store Store // nil means that rights are kept in memory
	log   *zap.Logger
	seed  maphash.Seed
	wake  chan struct{} // holds one signal: unwritten is not empty

	mu sync.Mutex
	// known has until when rights are stored, or will be, in Unix seconds, by the hash of their owner and
	// source. Without it each call would write. Guarded by mu.
	known map[uint64]int64
	// unwritten has the rights that are not stored yet, by owner and source. Guarded by mu.
	unwritten map[string]map[Source]time.Time
}

func newRights(s Store, log *zap.Logger) *rights {
	return &rights{store: s, log: log, seed: maphash.MakeSeed(), wake: make(chan struct{}, 1), known: map[uint64]int64{}, unwritten: map[string]map[Source]time.Time{}}
}

// note notes a right. A right that is not stored because too many others are waiting is noted by the next call.
func (s *rights) note(r Right) {
	r.Until = r.Until.Add(time.Second - 1).Truncate(time.Second)
	hash := maphash.Comparable(s.seed, Right{Owner: r.Owner, Source: r.Source})
	s.mu.Lock()
	defer s.mu.Unlock()
	if until, has := s.known[hash]; has && until >= r.Until.Unix() || s.unwritten[r.Owner] == nil && len(s.unwritten) >= maxUnwritten {
		return
	}
	if len(s.known) >= maxStored {
		clear(s.known)
	}
	s.known[hash] = r.Until.Unix()
	if s.unwritten[r.Owner] == nil {
		s.unwritten[r.Owner] = map[Source]time.Time{}
	}
	s.unwritten[r.Owner][r.Source] = r.Until
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run stores rights until ctx ends, and then what is left.
func (s *rights) run(ctx context.Context) {
	if s.store == nil {
		return
	}
	failing := false
	for {
		var again <-chan time.Time
		err := s.write(ctx)
		if err != nil && ctx.Err() == nil {
			if !failing {
				s.log.Warn("rights of callers cannot be stored; trying again", zap.Error(err))
			}
			again = time.After(pollInterval)
		}
		failing = err != nil
		wake := s.wake
		if failing {
			wake = nil
		}
		select {
		case <-wake:
		case <-again:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), pollInterval)
			defer cancel()
			_ = s.write(last) // if it fails, the next call of the owner notes the right again
			return
		}
	}
}

// write stores all rights that are not stored yet.
func (s *rights) write(ctx context.Context) error {
	for {
		batch := s.batch()
		if len(batch) == 0 {
			return nil
		}
		if err := s.store.PutRights(ctx, batch); err != nil {
			return err
		}
		s.written(batch)
	}
}

// batch returns rights that are not stored yet.
func (s *rights) batch() (list []Right) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for owner := range s.unwritten {
		if len(list) >= writeBatch {
			break
		}
		list = append(list, s.of(owner)...)
	}
	return list
}

// of returns the rights of an owner that are not stored yet. The caller holds mu.
func (s *rights) of(owner string) (list []Right) {
	for source, until := range s.unwritten[owner] {
		list = append(list, Right{owner, source, until})
	}
	return list
}

// written notes that rights are stored.
func (s *rights) written(batch []Right) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range batch {
		if of := s.unwritten[r.Owner]; of[r.Source].Equal(r.Until) { // else it lasts longer by now
			if delete(of, r.Source); len(of) == 0 {
				delete(s.unwritten, r.Owner)
			}
		}
	}
}

// lasts reports whether a right of an owner lasts.
func (s *rights) lasts(ctx context.Context, owner string, now time.Time, accepted []Source) (bool, error) {
	lasting := func(r Right) bool { return r.Lasts(now, accepted) }
	s.mu.Lock()
	list := s.of(owner)
	s.mu.Unlock()
	if s.store == nil || slices.ContainsFunc(list, lasting) {
		return slices.ContainsFunc(list, lasting), nil
	}
	list, err := s.store.Rights(ctx, owner)
	return slices.ContainsFunc(list, lasting), err
}

// ended returns the owners with unfinished tasks who had rights of which none lasts, each with the end of the
// last one.
func (s *rights) ended(ctx context.Context, now time.Time, accepted []Source) (map[string]time.Time, error) {
	if s.store == nil {
		return nil, nil
	}
	owners, err := s.store.EndedRights(ctx, now, accepted)
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(owners, func(owner string, _ time.Time) bool {
		return slices.ContainsFunc(s.of(owner), func(r Right) bool { return r.Lasts(now, accepted) })
	})
	return owners, err
}
