package inflight

import (
	"runtime"
	"sync"
	"time"
)

// LargeSize is the number of bytes from which a message is large: to encode or decode it takes some milliseconds.
const LargeSize = 256 << 10

// turns has an entry for each large message that is encoded or decoded now, and room for half of the processors. Go's
// scheduler knows no priorities: a goroutine that becomes ready waits behind all that compute, for up to 10 ms each. This
// way small requests find a free processor, however many large messages there are.
var turns = make(chan struct{}, max(1, min(runtime.NumCPU(), runtime.GOMAXPROCS(0))/2))

// longestTurn is when a turn ends by itself. What takes longer waits rather than computes, such as for a database that does not
// answer, and must not delay everything else that is large.
const longestTurn = 5 * time.Second

// Turn waits for the turn of a message of size bytes and returns a function that ends it. A message that is not large has its
// turn at once. During a turn the caller computes, and may read from the store what it computes with: it must not wait for
// anything else, such as a client, nor take another turn.
func Turn(size int64) (end func()) {
	if size < LargeSize {
		return func() {}
	}
	turns <- struct{}{}
	leave := sync.OnceFunc(func() { <-turns })
	timer := time.AfterFunc(longestTurn, leave)
	return func() {
		timer.Stop()
		leave()
	}
}
