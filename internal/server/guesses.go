package server

import (
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// minPause is how long an address pauses for its first unknown key. Each further one
	// doubles the pause, up to maxPause.
	minPause, maxPause = time.Millisecond, 200 * time.Millisecond
	// maxPaused is how much pause an address may owe before its keys are not looked at.
	maxPaused = 4 * time.Second
	// forgetTime is how long after its last pause an address is forgotten.
	forgetTime = time.Minute
	// guessLog is how often an address that goes on is logged at least.
	guessLog = 10 * time.Second
	// maxAddresses and maxKnown bound what is remembered.
	maxAddresses, maxKnown = 4096, 16384
)

// guesses slows down who tries out API keys: unknown keys make the address that they come
// from owe a pause, and while it owes too much its keys are not looked at. A key that was
// right from an address before is taken from there at once, whatever else comes from it.
type guesses struct {
	log  *zap.Logger
	mu   sync.Mutex
	from map[netip.Prefix]*guesser // guarded by mu
	// known are keys that were right, with where they came from; guarded by mu.
	known map[knownKey]struct{}
}

type knownKey struct {
	from netip.Prefix
	key  int
}

// guesser is an address that unknown keys came from.
type guesser struct {
	pause   time.Duration // for the next unknown key
	until   time.Time     // when it owes nothing any more
	began   time.Time
	unknown int       // keys that were looked at
	refused int       // keys that were not looked at
	logged  time.Time // when a line was written last
	next    int       // unknown and refused keys at which the next line is written
}

// admit takes note of a key that came from an address: found is its number, negative for a
// key that nobody has. The error says that the key is not looked at now.
func (g *guesses) admit(addr netip.Addr, found int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	from := network(addr)
	known := knownKey{from, found}
	if _, ok := g.known[known]; ok {
		return nil
	}
	now := time.Now()
	r := g.from[from]
	if r == nil && len(g.from) >= maxAddresses {
		r = g.from[netip.Prefix{}]
	}
	if r != nil {
		if wait := r.until.Sub(now) - maxPaused; wait > 0 {
			r.refused++
			g.tell(from, r, now)
			return tooManyGuesses(max(wait.Round(time.Millisecond), time.Millisecond))
		}
	}
	if found >= 0 {
		g.remember(known)
		return nil
	}
	if r == nil {
		from, r = g.add(from, now)
	}
	r.until = later(r.until, now).Add(r.pause)
	r.pause = min(2*r.pause, maxPause)
	r.unknown++
	g.tell(from, r, now)
	return nil
}

// network is the address, or the network of an IPv6 address: one caller has all of it.
func network(addr netip.Addr) netip.Prefix {
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	p, _ := addr.Prefix(bits) // fails for the zero address, whose network is the zero one
	return p
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// remember notes a key that was right. The caller holds mu.
func (g *guesses) remember(k knownKey) {
	if g.known == nil || len(g.known) >= maxKnown {
		g.known = map[knownKey]struct{}{}
	}
	g.known[k] = struct{}{}
}

// add returns a new guesser; where there are too many, all others share one. The caller
// holds mu.
func (g *guesses) add(from netip.Prefix, now time.Time) (netip.Prefix, *guesser) {
	for p, r := range g.from {
		if now.Sub(r.until) > forgetTime {
			g.line(p, r)
			delete(g.from, p)
		}
	}
	if len(g.from) >= maxAddresses {
		from = netip.Prefix{}
	}
	if g.from == nil {
		g.from = map[netip.Prefix]*guesser{}
	}
	if g.from[from] == nil {
		g.from[from] = &guesser{pause: minPause, began: now, logged: now, next: 1}
	}
	return from, g.from[from]
}

// tell logs a guesser at its first key, its tenth, its hundredth and so on, and every
// guessLog. The caller holds mu.
func (g *guesses) tell(from netip.Prefix, r *guesser, now time.Time) {
	if n := r.unknown + r.refused; n < r.next && now.Sub(r.logged) < guessLog {
		return
	}
	for r.next <= r.unknown+r.refused {
		r.next *= 10
	}
	g.line(from, r)
	r.logged = now
}

func (g *guesses) line(from netip.Prefix, r *guesser) {
	where := "elsewhere"
	switch {
	case from.IsSingleIP():
		where = from.Addr().String()
	case from.IsValid():
		where = from.String()
	}
	g.log.Warn("unknown API keys", zap.String("address", where), zap.Int("keys", r.unknown+r.refused), zap.Int("not_looked_at", r.refused),
		zap.Duration("since", time.Since(r.began)))
}

// flush logs what was not logged yet, when the server stops.
func (g *guesses) flush() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for from, r := range g.from {
		g.line(from, r)
	}
}

func tooManyGuesses(wait time.Duration) *agent.Error {
	return &agent.Error{
		Code: agent.CodeResourceExhausted, Reason: agent.ReasonInsufficientResources, Retry: true, RetryAfter: wait,
		Message: "too many unknown API keys came from this address, so this key was not looked at; try again in a moment",
	}
}
