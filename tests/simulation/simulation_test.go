// Package simulation runs replicas of the server over a store that they share, in virtual time and with
// faults, in an order that a seed decides. The same seed always gives the same simulation, which the
// tests check, and
//
//	go test ./tests/simulation -run=TestP8 -seed=N -v
//
// runs one again and prints its trace. The replicas are the handler, the engine and the driver of runs of
// the real server with agents that need no model. What they send to the store, and each call of a
// member, waits at a gate, which lets one operation at a time through.
package simulation

import (
	"flag"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

var (
	seedFlag  = flag.Int64("seed", 0, "the one seed to simulate, with its trace; 0 means many")
	seedsFlag = flag.Int64("seeds", 150, "how many seeds to simulate")
	firstFlag = flag.Int64("first", 1, "the first of them")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble simulates a seed in virtual time.
func bubble(t *testing.T, seed int64, f flaw) (r result) {
	synctest.Test(t, func(t *testing.T) { r = simulate(t, seed, f) })
	return r
}

// twice simulates a seed twice, and compares the traces.
func twice(t *testing.T, seed int64) result {
	a, b := bubble(t, seed, noFlaw), bubble(t, seed, noFlaw)
	if a.hash != b.hash {
		for i := range a.trace {
			if i >= len(b.trace) || a.trace[i] != b.trace[i] {
				from := max(i-15, 0)
				t.Errorf("seed %d is not repeated: line %d differs\nfirst:\n%s\nsecond:\n%s", seed, i,
					strings.Join(a.trace[from:min(i+5, len(a.trace))], "\n"), strings.Join(b.trace[from:min(i+5, len(b.trace))], "\n"))
				break
			}
		}
		if len(b.trace) > len(a.trace) {
			t.Errorf("seed %d is not repeated: the second time it has %d lines, the first time %d", seed, len(b.trace), len(a.trace))
		}
	}
	if len(a.faults) > 0 {
		t.Errorf("seed %d:\n%s\nRun it again with -seed=%d. Its trace:\n%s", seed, strings.Join(a.faults, "\n"), seed, strings.Join(a.trace, "\n"))
	}
	return a
}

// TestP8_Seeds simulates many seeds, each of them twice.
func TestP8_Seeds(t *testing.T) {
	if *seedFlag != 0 {
		r := twice(t, *seedFlag)
		t.Logf("seed %d, trace %s:\n%s", *seedFlag, r.hash, strings.Join(r.trace, "\n"))
		return
	}
	var mu sync.Mutex
	var virtual time.Duration
	tasks, next, began := 0, *firstFlag, time.Now()
	draw := func() (int64, bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, next <= *firstFlag+*seedsFlag
	}
	t.Run("seeds", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("worker", func(t *testing.T) {
				t.Parallel()
				for seed, more := draw(); more && !t.Failed(); seed, more = draw() {
					r := twice(t, seed)
					mu.Lock()
					virtual += r.virtual
					tasks += r.tasks
					mu.Unlock()
				}
			})
		}
	})
	t.Logf("%d seeds from %d, each twice: %d tasks, %v of virtual time a seed, in %v", *seedsFlag, *firstFlag, tasks, (virtual / time.Duration(*seedsFlag)).Round(time.Second), time.Since(began).Round(time.Millisecond))
}

// TestP8_FlawsAreFound simulates a store with a flaw until the checks find it.
func TestP8_FlawsAreFound(t *testing.T) {
	for _, f := range []flaw{unfenced, losesCommits, losesInputs, forgetsMessages} {
		t.Run(strings.ReplaceAll(string(f), " ", "_"), func(t *testing.T) {
			for seed := int64(1); seed <= 300; seed++ {
				if r := bubble(t, seed, f); len(r.faults) > 0 {
					t.Logf("seed %d: %s", seed, r.faults[0])
					return
				}
			}
			t.Errorf("nothing is wrong in 300 seeds")
		})
	}
}
