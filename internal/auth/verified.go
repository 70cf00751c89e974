package auth

import (
	"crypto/sha256"
	"sync"
	"time"
)

// maxVerified is the number of results that a verified keeps.
const maxVerified = 4096

// verified remembers signatures that were verified, so that each call does not cost another verification.
// The zero value remembers nothing. It is safe for concurrent use.
type verified struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]verdict // by what was signed; guarded by mu
}

// verdict says with what a signature was verified, and until when that is true.
type verdict struct {
	by    any // a pointer to keys or authorities that are not modified
	until time.Time
}

// has reports whether something is known to be signed by keys or authorities that are in use.
func (v *verified) has(signed [sha256.Size]byte, by any, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	known, ok := v.all[signed]
	return ok && known.by == by && now.Before(known.until)
}

// add remembers something that is signed. If it is full, it forgets everything first.
func (v *verified) add(signed [sha256.Size]byte, by any, until time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.all == nil || len(v.all) >= maxVerified {
		v.all = map[[sha256.Size]byte]verdict{}
	}
	v.all[signed] = verdict{by, until}
}
