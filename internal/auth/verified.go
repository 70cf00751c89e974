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
	by    any    // a pointer to keys or authorities that are not modified
	key   string // the thumbprint of the one of them that has signed
	until time.Time
}

// find returns the thumbprint of the key that is known to have signed something, and is one of the keys or
// authorities that are in use.
func (v *verified) find(signed [sha256.Size]byte, by any, now time.Time) (key string, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known, ok := v.all[signed]
	return known.key, ok && known.by == by && now.Before(known.until)
}

// add remembers something that is signed. If it is full, it forgets everything first.
func (v *verified) add(signed [sha256.Size]byte, by any, key string, until time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.all == nil || len(v.all) >= maxVerified {
		v.all = map[[sha256.Size]byte]verdict{}
	}
	v.all[signed] = verdict{by, key, until}
}
