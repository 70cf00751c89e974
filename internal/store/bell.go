package store

import (
	"sync"

	"github.com/agentteams/team-server/pkg/a2a"
)

// Everybody is the audience of a change that may concern every owner.
const Everybody = ""

// EveryoneOf returns the audience of a change that may concern every owner of an
// account.
func EveryoneOf(account string) string { return account + "/" }

// Audiences returns the audiences that an owner belongs to: the owner, its account, and Everybody.
func Audiences(owner string) [3]string {
	return [3]string{owner, EveryoneOf(a2a.AccountOf(owner)), Everybody}
}

// Bell wakes the watchers that a change may concern. The zero value has no watchers. It is safe for
// concurrent use.
type Bell struct {
	mu       sync.Mutex
	watchers map[chan struct{}]string // owner of each watcher; guarded by mu
}

// Watch returns a channel that receives when the bell is rung for an audience that the
// owner belongs to, until stop is called.
func (b *Bell) Watch(owner string) (wake <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watchers == nil {
		b.watchers = map[chan struct{}]string{}
	}
	b.watchers[c] = owner
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watchers, c)
	}
}

// Ring wakes the watchers of an audience: an owner, EveryoneOf an account, or
// Everybody. It never blocks.
func (b *Bell) Ring(audience string) {
	b.RingIf(func(a string) bool { return a == audience })
}

// RingIf wakes the watchers of each audience for which concerned returns true. It never
// blocks.
func (b *Bell) RingIf(concerned func(audience string) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c, owner := range b.watchers {
		for _, audience := range Audiences(owner) {
			if concerned(audience) {
				Poke(c)
				break
			}
		}
	}
}

// Poke sends a signal to a channel with a buffer of one, unless one is pending. It never blocks.
func Poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
