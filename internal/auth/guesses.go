package auth

import (
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// minPause is the pause of an address for its first unknown key. Each further unknown
	// key doubles the pause, up to maxPause.
	minPause, maxPause = time.Millisecond, 200 * time.Millisecond
	// maxPaused is the pause that an address may accumulate before its keys are rejected
	// unchecked.
	maxPaused = 4 * time.Second
	// forgetTime is how long after its last pause the record of an address is deleted.
	forgetTime = time.Minute
	// guessLog is the longest interval between log lines for an address that continues.
	guessLog = 10 * time.Second
	// maxAddresses and maxKnown limit the size of the maps.
	maxAddresses, maxKnown = 4096, 16384
)

// guesses slows down callers that guess API keys and tokens. Each unknown one adds a pause to
// its address; while the sum of the pauses is too long, those from there are rejected
// unchecked. An owner whose key or token was valid from an address before is always accepted
// from there without a pause.
type guesses struct {
	log  *zap.Logger
	mu   sync.Mutex
	from map[netip.Prefix]*guesser // guarded by mu
	// known holds owners with the network that a valid key came from; guarded by mu.
	known map[knownOwner]struct{}
}

type knownOwner struct {
	from  netip.Prefix
	owner string
}

// guesser is an address that sent unknown keys.
type guesser struct {
	pause   time.Duration // for the next unknown key
	until   time.Time     // when all its pauses are over
	began   time.Time
	unknown int       // keys that were checked
	refused int       // keys that were rejected unchecked
	logged  time.Time // when the last line was logged
	next    int       // number of keys at which the next line is logged
}

// admit records a key that came from an address. owner is that of a valid key, and empty for
// an unknown one. The error means that the key is rejected unchecked.
func (g *guesses) admit(addr netip.Addr, owner string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	from := Network(addr)
	known := knownOwner{from, owner}
	if _, ok := g.known[known]; ok {
		return nil
	}
	now := time.Now()
	r := g.of(from)
	if r != nil {
		if wait := r.until.Sub(now) - maxPaused; wait > 0 {
			r.refused++
			g.logDue(from, r, now)
			return tooManyGuesses(max(wait.Round(time.Millisecond), time.Millisecond))
		}
	}
	if owner != "" {
		g.remember(known)
		return nil
	}
	if r == nil {
		from, r = g.add(from, now)
	}
	r.until = later(r.until, now).Add(r.pause)
	r.pause = min(2*r.pause, maxPause)
	r.unknown++
	g.logDue(from, r, now)
	return nil
}

// waits reports whether admit would reject a key that comes from an address unchecked.
func (g *guesses) waits(addr netip.Addr, owner string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	from := Network(addr)
	if _, ok := g.known[knownOwner{from, owner}]; ok {
		return false
	}
	r := g.of(from)
	return r != nil && time.Until(r.until) > maxPaused
}

// of returns the guesser at an address, nil if none is known. The caller holds mu.
func (g *guesses) of(from netip.Prefix) *guesser {
	r := g.from[from]
	if r == nil && len(g.from) >= maxAddresses {
		r = g.from[netip.Prefix{}]
	}
	return r
}

// Network returns the address, or the /64 network of an IPv6 address, which one caller
// usually has to itself.
func Network(addr netip.Addr) netip.Prefix {
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	p, _ := addr.Prefix(bits) // fails for the zero address, whose network is the zero prefix
	return p
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// remember records the owner of a valid key. The caller holds mu.
func (g *guesses) remember(k knownOwner) {
	if g.known == nil || len(g.known) >= maxKnown {
		g.known = map[knownOwner]struct{}{}
	}
	g.known[k] = struct{}{}
}

// add returns a new guesser; if there are too many, further addresses share one. The
// caller holds mu.
func (g *guesses) add(from netip.Prefix, now time.Time) (netip.Prefix, *guesser) {
	for p, r := range g.from {
		if now.Sub(r.until) > forgetTime {
			g.write(p, r)
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

// logDue logs a guesser at its first, tenth, hundredth key and so on, and otherwise once
// guessLog has passed. The caller holds mu.
func (g *guesses) logDue(from netip.Prefix, r *guesser, now time.Time) {
	if n := r.unknown + r.refused; n < r.next && now.Sub(r.logged) < guessLog {
		return
	}
	for r.next <= r.unknown+r.refused {
		r.next *= 10
	}
	g.write(from, r)
	r.logged = now
}

// write logs one line about a guesser.
func (g *guesses) write(from netip.Prefix, r *guesser) {
	where := "elsewhere"
	switch {
	case from.IsSingleIP():
		where = from.Addr().String()
	case from.IsValid():
		where = from.String()
	}
	g.log.Warn("unknown API keys or bad tokens", zap.String("address", where), zap.Int("keys", r.unknown+r.refused), zap.Int("not_looked_at", r.refused),
		zap.Time("since", r.began))
}

// flush logs all guessers when the server stops.
func (g *guesses) flush() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for from, r := range g.from {
		g.write(from, r)
	}
}

func tooManyGuesses(wait time.Duration) *agent.Error {
	return &agent.Error{
		Code: agent.CodeResourceExhausted, Reason: agent.ReasonInsufficientResources, Retry: true, RetryAfter: wait,
		Message: "too many unknown API keys or bad tokens came from this address, so this one was not checked; try again later",
	}
}
