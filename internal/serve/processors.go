package serve

import (
	"os"
	"runtime"
)

// leastProcessors is how many threads run Go code at the same time on a machine with fewer cores. Go's scheduler has a
// goroutine wait for a processor while others use each one for up to 10 ms; with few processors, small tasks wait behind
// a few large messages that way. The kernel divides its cores more finely.
const leastProcessors = 4

// UseProcessors sets GOMAXPROCS to at least leastProcessors, unless its environment variable is set, or the control group of the
// process has a quota, which more threads would use up sooner. It must be called before the process serves.
func UseProcessors() {
	_, set := os.LookupEnv("GOMAXPROCS")
	if n := processors(runtime.GOMAXPROCS(0), runtime.NumCPU(), set); n != runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(n)
	}
}

// processors returns the GOMAXPROCS of a process in place of now, on a machine with a number of cores. set says that
// the environment sets it.
func processors(now, cores int, set bool) int {
	if set || now != cores {
		return now
	}
	return max(now, leastProcessors)
}
